#pragma once
// Whether a run keeps its data in device memory or streams it: data.mode.

#include <string>

#include "base/recipe.h"
#include "data/data_set.h"
#include "data/fields.h"
#include "ops/backend.h"

namespace millrace::train {

struct Loading {
    bool stream = false;
    bool streamable = false;  ///< resident by choice: where the plan has no room for it, streaming would do
    std::string reason;       ///< for people; empty where sets of this kind are always resident
};

/// auto: as the run that goes on has it; else resident when the set fits into what device and machine have room for. Refuses
/// "stream" for a kind of data that cannot be streamed, and another way than that of the run that goes on.
base::Result<Loading> choose_loading(const base::Recipe& recipe, data::DataKind kind, bool training,
                                     const data::StoredData& stored, const ops::Backend& backend);

}  // namespace millrace::train
