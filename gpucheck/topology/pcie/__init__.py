"""PCIe: paths between functions, redirected traffic, CPU limits, network cards."""
