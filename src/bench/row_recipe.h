#pragma once
// The recipe of a row, what its workload says and, over that, the command line; rows that a file asks for, a scan over shapes in
// one call; and the data of a row: random, resident, of the sizes that the peers have.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe.h"
#include "bench/bench.h"
#include "data/batch_source.h"
#include "data/fields.h"

namespace millrace::bench {

/// Refuses keys of `Options::settings` that no benchmark can follow: those of real data, of evaluation, checkpoints and
/// telemetry.
base::Result<base::Recipe> row_recipe(const Workload& workload, const Options& options);

/// The keys whose values the command line changes.
base::Result<std::vector<std::string>> changed_keys(const Workload& workload, const Options& options);

struct Point {
    Workload workload;
    std::vector<std::string> settings;  ///< over those of the workload
};

/// A line each: the name of a workload and its settings, "transformer-base model.width=256 train.batch=32". Empty lines and lines
/// that begin with # count for nothing. Errors are at "place:line".
base::Result<std::vector<Point>> read_points(std::string_view text, const std::string& place, const std::vector<Workload>& all);

/// 54,000 images, 5,021 pairs of unit vectors, 400,000 windows of recordings or two million tokens of text in windows of
/// data.length, less what a last step of train.batch rows would lack, so that every step has the same size; a step larger than
/// that is given its samples. All of them are for training. Refuses a step of more than 2^31 - 1 tokens.
base::Result<std::unique_ptr<data::BatchSource>> random_data(const base::Recipe& recipe, data::DataKind kind);

}  // namespace millrace::bench
