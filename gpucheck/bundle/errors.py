"""What can go wrong with a bundle."""


class BundleError(Exception):
    """A bundle cannot be made or used. The message states what, where, why and what to do."""


class BundleDamaged(BundleError):
    """A bundle is not as it was signed."""
