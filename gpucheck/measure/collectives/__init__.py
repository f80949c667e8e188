"""Collectives: bandwidth by nccl-tests' definitions, exact results in every round, the transport of NCCL."""
