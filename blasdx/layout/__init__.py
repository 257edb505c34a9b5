"""Integers only: how operands lie in shared and tensor memory, and the bit fields that tell the hardware."""
