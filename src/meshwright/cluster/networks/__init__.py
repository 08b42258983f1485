"""Networks between hosts: regular tiers, any switch graph, forwarding tables; loads on cables."""
