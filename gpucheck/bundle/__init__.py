"""Create and verify offline bundles: all packages of the plans of chosen groups, in one signed directory."""
