"""What is read of a host: its hardware, its health, its software and how it is wired."""


class NotRecorded(LookupError):
    """A value was requested that the recording does not contain. The message is a complete sentence."""
