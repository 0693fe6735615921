#pragma once
// What the best weights of a run say about other data.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/file.h"

namespace millrace::train {

struct PredictRequest {
    io::Path run;
    std::vector<io::Path> inputs;  ///< in any form of data.path
    io::Path out;                  ///< .csv, .jsonl or .npy
    std::string device = {};       ///< empty: as the run
    std::int64_t batch = 0;        ///< rows at once; 0: as the run evaluates
    std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

struct PredictReport {
    std::string device, unit;  ///< what a sample is called: "pictures"
    std::string summary = {};  ///< what the family has to say; empty: nothing
    std::uint64_t samples = 0;
    std::uint64_t failed = 0;  ///< of them without a prediction
    double seconds = 0;        ///< of the predictions themselves
};

/// Writes a row for every sample of the inputs, in their order, or nothing at all. Rows of what cannot be read have empty cells,
/// and the log names the first of them.
base::Result<PredictReport> predict(const PredictRequest& request);

}  // namespace millrace::train
