"""Randomness that is keyed, never consumed.

A number depends on the seed, a name and a purpose alone, so that the order of nodes and the
breaking of ties are the same after a restart, on a standby, and after other nodes have joined.
"""

from hashlib import blake2b

import numpy as np


def keyed(seed: int, purpose: str, name: str) -> int:
    """Return 63 random bits that belong to `name` for `purpose`.

    Philox (Salmon et al., SC 2011) with the seed as key and a hash of purpose and name as counter.
    """
    digest = blake2b(f"{purpose}\0{name}".encode(), digest_size=32).digest()
    generator = np.random.Philox(key=seed % 2**128, counter=int.from_bytes(digest, "little"))
    return int(generator.random_raw()) >> 1
