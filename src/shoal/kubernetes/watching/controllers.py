"""Accounts that make objects for others: Kubernetes' own controllers, and those that are named.

What such an account made is asked for by whoever asked for the object's owner. So it may only be an
account that nobody else can act as, and that never takes an owner from what people write.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from shoal.objects.rights import SERVICE_ACCOUNTS

ACCOUNT_FORM: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?"
"""A service account as `NAMESPACE:NAME`, or all of a namespace as `NAMESPACE`."""


@dataclass(frozen=True)
class Controllers:
    """Kubernetes' own controllers, and further accounts in the form of `ACCOUNT_FORM`.

    Raises ValueError for another form.
    """

    accounts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for each in self.accounts:
            if re.fullmatch(ACCOUNT_FORM, each) is None:
                raise ValueError(
                    f'found "{each}"; write NAMESPACE:NAME, or NAMESPACE for all of it'
                )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Whole names of users. A controller manager without accounts of its own is the first."""
        named = (SERVICE_ACCOUNTS + each for each in self.accounts if ":" in each)
        return ("system:kube-controller-manager", *named)

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """Beginnings of names: all accounts of a namespace."""
        whole = (each for each in self.accounts if ":" not in each)
        return tuple(f"{SERVICE_ACCOUNTS}{each}:" for each in ("kube-system", *whole))

    def include(self, user: str) -> bool:
        """Whether a user, as Kubernetes names it, is one of them."""
        return user.startswith(self.prefixes) or user in self.names


KUBERNETES_OWN: Final = Controllers()
