"""LIDs of adapters: the InfiniBand formats give each adapter the LID of its lowest cabled port."""

from __future__ import annotations

import pytest

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers import iblinkinfo, ibnetdiscover, ibnetdiscover_ports, ibsim_net

_LISTING = """\
vendid=0x2c9
devid=0xd2f0
sysimgguid=0xa1
switchguid=0xa1(a1)
Switch\t40 "S-00000000000000a1"\t\t# "rim" base port 0 lid 3 lmc 0
[7]\t"H-00000000000000b1"[2](b3) \t\t# "vat1 mlx5_0" lid {far} 4xHDR
[8]\t"H-00000000000000c1"[1](c2) \t\t# "vat2 mlx5_0" lid 12 4xHDR

vendid=0x2c9
devid=0x101b
sysimgguid=0xb1
caguid=0xb1
Ca\t2 "H-00000000000000b1"\t\t# "vat1 mlx5_0"
[2](b3) \t"S-00000000000000a1"[7]\t\t# lid {own} lmc 1 "rim" lid 3 4xHDR
"""
_PORTS = """\
SW     3  7 0x00000000000000a1 4x HDR - CA    21  2 0x00000000000000b3 ( 'rim' - 'vat1 mlx5_0' )
SW     3  8 0x00000000000000a1 4x HDR - CA    12  1 0x00000000000000c2 ( 'rim' - 'vat2 mlx5_0' )
"""
_LINKS = """\
Switch: 0x00000000000000a1 rim:
           3    7[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>      21    2[  ] "vat1 mlx5_0" ( )
           3    8[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>      12    1[  ] "vat2 mlx5_0" ( )
"""


def _lids(facts: Facts) -> dict[str, int | None]:
    return {str(nic.host): nic.lid for nic in facts.nics or ()}


def test_ibnetdiscover_by_its_own_line_and_by_the_far_end() -> None:
    """``vat2`` has no stanza: the switch's line tells its LID."""
    text = _LISTING.format(own=21, far=21)
    assert _lids(ibnetdiscover.read(text, "t.txt")) == {"vat1": 21, "vat2": 12}


@pytest.mark.parametrize("lid", ["0", "49152", "65535", "9" * 30])
def test_no_unicast_lid_is_none(lid: str) -> None:
    facts = ibnetdiscover.read(_LISTING.format(own=lid, far=lid), "t.txt")
    assert _lids(facts) == {"vat1": None, "vat2": 12}


def test_port_listings() -> None:
    assert _lids(ibnetdiscover_ports.read(_PORTS, "t.txt")) == {"vat1": 21, "vat2": 12}
    assert _lids(iblinkinfo.read(_LINKS, "t.txt")) == {"vat1": 21, "vat2": 12}


def test_net_files_have_none() -> None:
    text = 'Switch 8 "S"\n[1] "H"[1]\n\nHca 1 "H" # "vat3 mlx5_0"\n[1] "S"[1]\n'
    assert _lids(ibsim_net.read(text, "n.net")) == {"vat3": None}
