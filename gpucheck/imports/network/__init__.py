"""Network cards for RDMA: state and measurements."""
