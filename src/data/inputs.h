#pragma once
// Samples without their answers, for a trained model to predict, prepared as its training data was.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/folder.h"
#include "data/preparation.h"

namespace millrace::data {

/// Inputs of some samples as a model reads them.
struct InputRows {
    std::vector<std::uint8_t> bytes;                     ///< [rows, width] of images; none: `numbers` has them
    std::vector<float> numbers;                          ///< [rows, width]
    std::map<std::size_t, std::string> unreadable = {};  ///< by row: why; what stands there has no meaning
};

/// Samples in their order. Rows are made when they are asked for.
struct Inputs {
    std::string unit;  ///< what a sample is called: "pictures", "rows"
    std::int64_t count = 0;
    std::vector<std::string> names = {};  ///< of each sample; empty: they have numbers alone
    std::function<Result<InputRows>(std::int64_t first, std::int64_t count)> read = {};
};

/// What lies at `paths`, in that order: pictures (folders of them at any depth by their path, single files), tables, arrays or
/// IDX files. What else lies there, such as answers, is not looked at. Refuses what is of another kind or shape than `prepared`
/// and what holds nothing.
Result<std::vector<Inputs>> open_inputs(const std::vector<Path>& paths, const Preparation& prepared);

}  // namespace millrace::data
