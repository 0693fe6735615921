#pragma once
// The data a model family wants, loaded as the recipe says.

#include <cstdint>
#include <memory>

#include "base/recipe.h"
#include "data/batch_source.h"
#include "models/registry.h"
#include "train/run_state.h"

namespace millrace::train {

struct LoadedData {
    DataIdentity identity;
    models::DataShape shape;
    std::unique_ptr<data::BatchSource> source;
};

/// Loads data.path. Errors are at that key; without `training` they say how to name another folder. Where the family reads
/// sentences, they are numbered by the tokenizer in `stored`, or by one trained on them when there is none.
base::Result<LoadedData> load_data(const base::Recipe& recipe, const models::Family& family, bool training,
                                   const data::SentenceShape& stored = {});

}  // namespace millrace::train
