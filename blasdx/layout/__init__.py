"""Pure integer arithmetic: how operands lie in shared and tensor memory, and the bit fields that say so to the hardware."""
