"""Widths of the collective's presets and how many parameters the models then have; no library is needed to read them."""

PRESETS = {
    "debug": dict(experts=2, analysts=6, expert=(128, 64, 32), analyst=(64, 32, 16)),
    "phase1": dict(experts=2, analysts=6, expert=(512, 256, 128), analyst=(256, 128, 64)),
}
PARAMETERS = {("debug", "r1"): 559738, ("phase1", "r1"): 2884042, ("debug", "r2"): 567044, ("phase1", "r2"): 2969887}
