"""Collectives: bandwidth by nccl-tests' definitions, exact results in every round, the transport that NCCL took."""
