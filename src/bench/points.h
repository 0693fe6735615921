#pragma once
// Rows that a file asks for: a scan over shapes in one call.

#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"

namespace millrace::bench {

struct Point {
    Workload workload;
    std::vector<std::string> settings;  ///< over those of the workload
};

/// A line each: the name of a workload and its settings, "transformer-base model.width=256 train.batch=32". Empty lines and lines
/// that begin with # count for nothing. Errors are at "place:line".
base::Result<std::vector<Point>> read_points(std::string_view text, const std::string& place, const std::vector<Workload>& all);

}  // namespace millrace::bench
