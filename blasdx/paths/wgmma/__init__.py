"""wgmma on SM 900."""
