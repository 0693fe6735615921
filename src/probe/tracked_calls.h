#pragma once
// Calls of the CUDA runtime that the program's libraries import (from libcudart.so), led through the probe: steps are counted and
// memory is followed while CUPTI is not in the process. A runtime inside of another library, as cuBLAS has one, is not reached;
// nor are calls of the driver.

namespace millrace::probe {

/// Leads the calls of libraries that are loaded by now through the probe. From the probe's own thread.
void track_calls();

}  // namespace millrace::probe
