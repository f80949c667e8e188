"""What every engine on CUDA needs: error codes, and the timing of queued copies."""
