"""The slow reference: every flow of every group, walked link by link with plain loops.

It reads the plain arrays of a ``Fabric`` and the two ends of every link, and shares no routine
with the product: paths are found by its own breadth-first searches.

Rules it states in its own words:

* a *cell* is what a group has in one island, cells stand by first appearance in the rank list,
  members of a cell by NIC number, then by rank;
* ring: as many channels as the poorest cell has distinct NICs, each from the c-th NIC of a cell to
  the c-th NIC of the next; a channel enters at the first member that owns its NIC and passes every
  member of the cell. Over an NVLink switch the last member hands over to the owner (``pxn-exit``),
  or the ring leaves where it is, the chains of all members as starting points taking equal parts
  (``alternating``). Without a switch the last member reaches the NIC over PCIe;
* a cell of which only some members hang on a switch: each edge goes by the switch where both its
  ends hang on it, else by the board; the last member hands over to the owner where both do;
* all-to-all: a pair of islands is bridged by the first member in the sender's host, else in its
  island, whose NIC is on the receiver's rail; else by the sender's own NIC. Who hangs on no switch
  has no relay and is none; two GPUs of one host never use the network;
* a flow that no path joins is lost and loads nothing outside its GPUs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import pairwise

from meshwright.cluster.fabric import Fabric
from meshwright.cluster.networks.network import TieredNetwork

Groups = list[list[int]]


class Walk:
    """Bytes on every link of a fabric, flow by flow."""

    def __init__(self, fabric: Fabric) -> None:
        self.load = [0.0] * len(fabric.links)
        self.lost = 0.0
        self.nic_out: dict[int, float] = defaultdict(float)
        self.nic_in: dict[int, float] = defaultdict(float)
        self.slots = fabric.num_slots
        self.host = fabric.host_of_slot.tolist()
        self.nic = fabric.nic_of_slot.tolist()
        self.domain = fabric.nvlink_domain_of_slot.tolist()
        self.island = fabric.island_of_slot.tolist()
        self.leaf = fabric.leaf_of_nic.tolist()
        self.rail = fabric.rail_of_nic.tolist()
        self.network = fabric.network
        self._read_links(fabric)
        self._paths: dict[tuple[int, int], list[list[tuple[int, float]]]] = {}

    def _read_links(self, fabric: Fabric) -> None:
        links = fabric.links
        first_switch = self.slots + len(self.leaf)
        self.switch_nodes = range(first_switch, first_switch + len(fabric.nvlink_domain_names))
        self.inner: dict[int, dict[int, int]] = defaultdict(dict)
        self.direct: dict[int, dict[int, int]] = defaultdict(dict)
        self.rate: dict[int, float] = {}
        self.nvlink: dict[tuple[int, int], int] = {}
        self.nic_link: dict[tuple[str, int], int] = {}
        for link, (tail, head) in enumerate(
            zip(links.tail.tolist(), links.head.tolist(), strict=True)
        ):
            one = links.classes[int(links.class_of_link[link])]
            self.rate[link] = one.capacity_bytes_per_s or 0.0
            if one.kind == "fabric":
                continue
            if one.kind == "nic":
                outward = self.slots <= tail < first_switch
                self.nic_link["out" if outward else "in", tail if outward else head] = link
            elif tail in self.switch_nodes or head in self.switch_nodes:
                self.nvlink[tail, head] = link
            elif one.kind in ("nvlink", "xgmi"):
                self.direct[tail][head] = link
            else:
                self.inner[tail][head] = link
        self._read_cables(fabric)

    def _read_cables(self, fabric: Fabric) -> None:
        self.cables: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """Switch to (neighbour, link id), one entry a cable."""
        self.ups: dict[int, list[int]] = defaultdict(list)
        self.downs: dict[int, list[int]] = defaultdict(list)
        if self.network is None:
            return
        self.switch = self.network.switch_of_leaf.tolist()
        cables = self.network.cables
        for cable, (low, high) in enumerate(
            zip(cables.lower.tolist(), cables.upper.tolist(), strict=True)
        ):
            up, down = fabric.cable_up0 + cable, fabric.cable_down0 + cable
            self.cables[low].append((high, up))
            self.cables[high].append((low, down))
            self.ups[low].append(up)
            self.downs[low].append(down)

    # Inside a host -------------------------------------------------------------------------

    def over_switch(self, a: int, b: int, size: float) -> None:
        if a == b:
            return
        middle = self.slots + len(self.leaf) + self.domain[a]
        self.load[self.nvlink[a, middle]] += size
        self.load[self.nvlink[middle, b]] += size

    def over_board(self, a: int, b: int, size: float) -> None:
        """From device to device of one host: a direct link, one GPU between, else PCIe."""
        for link in self.board_path(a, b):
            self.load[link] += size

    def board_path(self, a: int, b: int) -> list[int]:
        if a == b:
            return []
        if b in self.direct[a]:
            return [self.direct[a][b]]
        ways = [
            (min(self.rate[self.direct[a][m]], self.rate[self.direct[m][b]]), m)
            for m in self.direct[a]
            if b in self.direct[m]
        ]
        if ways:
            middle = max(ways)[1]
            return [self.direct[a][middle], self.direct[middle][b]]
        came: dict[int, int] = {a: a}
        queue = deque([a])
        while queue:
            node = queue.popleft()
            for near in self.inner[node]:
                if near not in came:
                    came[near] = node
                    queue.append(near)
        path = []
        while b in came and b != a:
            path.append(self.inner[came[b]][b])
            b = came[b]
        return path

    # Over the network ----------------------------------------------------------------------

    def send(self, a: int, b: int, size: float, via: int | None = None) -> None:
        """From GPU a to GPU b over the network; ``via``: by the NIC of this GPU."""
        exit_gpu = a if via is None else via
        out, into = self.nic[exit_gpu], self.nic[b]
        if not self.over_network(out, into, size):
            return
        if via is not None:
            self.over_switch(a, via, size)
        self.over_board(exit_gpu, self.slots + out, size)
        self.over_board(self.slots + into, b, size)

    def over_network(self, out: int, into: int, size: float) -> bool:
        """From NIC to NIC; tell whether there is a path."""
        ways = self.ways(out, into)
        if ways is None:
            self.lost += size
            return False
        self.nic_out[out] += size
        self.nic_in[into] += size
        self.load[self.nic_link["out", self.slots + out]] += size
        self.load[self.nic_link["in", self.slots + into]] += size
        for link, part in ways:
            self.load[link] += size * part
        return True

    def ways(self, out: int, into: int) -> list[tuple[int, float]] | None:
        if out < 0 or into < 0 or self.leaf[out] < 0 or self.leaf[into] < 0:
            return None
        src, dst = self.leaf[out], self.leaf[into]
        if (src, dst) not in self._paths:
            find = self._even if isinstance(self.network, TieredNetwork) else self._shortest
            found = [] if src == dst else find(src, dst)
            self._paths[src, dst] = [] if found is None else [found]
        known = self._paths[src, dst]
        return known[0] if known else None

    def _even(self, src: int, dst: int) -> list[tuple[int, float]] | None:
        """A regular fabric: even over all cables out of the leaf (pod), even over all into it."""
        network = self.network
        if network.component_of_leaf[src] != network.component_of_leaf[dst]:
            return None
        found = []
        for links, leaf in ((self.ups, src), (self.downs, dst)):
            mine = links[self.switch[leaf]]
            found += [(link, 1 / len(mine)) for link in mine]
        pods = network.pod_of_leaf.tolist()
        if pods[src] != pods[dst]:
            for links, pod in ((self.ups, pods[src]), (self.downs, pods[dst])):
                mine = [link for spine in self._spines(pod) for link in links[spine]]
                found += [(link, 1 / len(mine)) for link in mine]
        return found

    def _spines(self, pod: int) -> list[int]:
        leaves = [leaf for leaf, one in enumerate(self.network.pod_of_leaf.tolist()) if one == pod]
        above = {n for leaf in leaves for n, _ in self.cables[self.switch[leaf]]}
        return sorted(above)

    def _shortest(self, src: int, dst: int) -> list[tuple[int, float]] | None:
        """Even over the cables that lead nearer, at every switch on a shortest path."""
        start, goal = self.switch[src], self.switch[dst]
        hops = {goal: 0}
        queue = deque([goal])
        while queue:
            node = queue.popleft()
            for near, _ in self.cables[node]:
                if near not in hops:
                    hops[near] = hops[node] + 1
                    queue.append(near)
        if start not in hops:
            return None
        share: dict[int, float] = defaultdict(float)

        def follow(node: int, part: float) -> None:
            nearer = [(n, link) for n, link in self.cables[node] if hops[n] == hops[node] - 1]
            for near, link in nearer:
                share[link] += part / len(nearer)
                follow(near, part / len(nearer))

        follow(start, 1.0)
        return list(share.items())

    # Patterns ------------------------------------------------------------------------------

    def cells(self, group: list[int]) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for slot in group:
            found.setdefault(self.island[slot], []).append(slot)
        return [sorted(one, key=self.nic.__getitem__) for one in found.values()]

    def all_switched(self, cell: list[int]) -> bool:
        return all(self.domain[slot] >= 0 for slot in cell)

    def by_switch(self, a: int, b: int) -> bool:
        return self.domain[a] >= 0 and self.domain[a] == self.domain[b]

    def hop(self, a: int, b: int, size: float) -> None:
        if self.by_switch(a, b):
            self.over_switch(a, b, size)
        else:
            self.over_board(a, b, size)

    def ring(self, group: list[int], edge_bytes: float, form: str) -> None:
        if len(group) < 2:
            return
        cells = self.cells(group)
        if len(cells) == 1:
            cell = cells[0]
            for a, b in zip(cell, cell[1:] + cell[:1], strict=True):
                self.hop(a, b, edge_bytes)
            return
        nics = [sorted({self.nic[slot] for slot in cell} - {-1}) for cell in cells]
        channels = min(len(one) for one in nics)
        if channels == 0:
            self.lost += edge_bytes * len(cells)
        else:
            for c in range(channels):
                self._channel(cells, [one[c] for one in nics], edge_bytes / channels, form)
            return
        for cell in cells:
            if self.all_switched(cell):
                self._inside(cell, cell[0], edge_bytes, form)

    def _channel(self, cells: Groups, nics: list[int], size: float, form: str) -> None:
        owners = [
            next(slot for slot in cell if self.nic[slot] == nic)
            for cell, nic in zip(cells, nics, strict=True)
        ]
        for i, cell in enumerate(cells):
            after = (i + 1) % len(cells)
            last = self._inside(cell, owners[i], size, form)
            if self.over_network(nics[i], nics[after], size):
                self.over_board(last, self.slots + nics[i], size)
                self.over_board(self.slots + nics[after], owners[after], size)

    def _inside(self, cell: list[int], owner: int, size: float, form: str) -> int:
        """Pass all members from the owner on; return the GPU that reaches the NIC."""
        k = len(cell)
        if k == 1:
            return owner
        if not self.all_switched(cell):
            chain = self._from(cell, cell.index(owner))
            for a, b in pairwise(chain):
                self.hop(a, b, size)
            if self.by_switch(chain[-1], owner):
                self.over_switch(chain[-1], owner, size)
                return owner
            return chain[-1]
        if form == "pxn-exit":
            chain = self._from(cell, cell.index(owner))
            for a, b in zip(chain, chain[1:] + chain[:1], strict=True):
                self.over_switch(a, b, size)
        else:
            for start in range(k):
                chain = self._from(cell, start)
                for a, b in pairwise(chain):
                    self.over_switch(a, b, size / k)
        return owner

    @staticmethod
    def _from(cell: list[int], start: int) -> list[int]:
        return cell[start:] + cell[:start]

    def all_to_all(self, group: list[int], send_bytes: float) -> None:
        size = send_bytes / len(group)
        for a in group:
            for b in group:
                if a == b:
                    continue
                if self.island[a] == self.island[b] or self.host[a] == self.host[b]:
                    self.hop(a, b, size)
                else:
                    self.send(a, b, size, self._relay(group, a, b))

    def _relay(self, group: list[int], a: int, b: int) -> int | None:
        if self.domain[a] < 0 or self.nic[b] < 0 or self.rail[self.nic[b]] < 0:
            return None
        wanted = self.rail[self.nic[b]]
        able = [
            slot
            for cell in self.cells(group)
            for slot in cell
            if self.by_switch(slot, a)
            and self.nic[slot] >= 0
            and self.rail[self.nic[slot]] == wanted
        ]
        near = [slot for slot in able if self.host[slot] == self.host[a]]
        return (near or able or [None])[0]

    def transfer(self, a: int, b: int, size: float) -> None:
        if a == b:
            return
        if self.by_switch(a, b) or self.host[a] == self.host[b]:
            self.hop(a, b, size)
        else:
            self.send(a, b, size)
