"""mma.sync, on every architecture."""
