#pragma once
// The choice of loader: the data of a kind, loaded as the recipe says.

#include <memory>
#include <optional>
#include <vector>

#include "base/recipe.h"
#include "data/batch_source.h"
#include "data/data_set.h"
#include "data/domain.h"

namespace millrace::data {

struct LoadedData {
    DataIdentity identity;
    std::unique_ptr<BatchSource> source;
    std::string unit = {};             ///< what its samples are called
    std::vector<Domain> domains = {};  ///< in the order in which they are learned; empty: the data is one whole
};

/// The keys of [data] in a recipe.
void add_data_keys(base::Schema& schema, DataKind kind);

/// What the set at data.path would take of device memory; nothing where sets of this kind cannot be streamed. Reads headers
/// alone.
base::Result<std::optional<std::uint64_t>> streamable_bytes(const base::Recipe& recipe, DataKind kind, bool training);

/// Loads data.path. Errors are at that key; without `training` they say how to name another folder. `token_keys` names the keys
/// (`<token_keys>.enabled`, `.vocabulary`, `.max_tokens`) that ask for texts as tokens; empty: the model reads no texts. They are
/// numbered by the tokenizer in `stored`, or by one trained on them when there is none; so is a text. Domains of a text get an
/// equal number of train.epochs each. `stream`: rows are read while they are needed.
base::Result<LoadedData> load_data(const base::Recipe& recipe, DataKind kind, const std::string& token_keys, bool training,
                                   const StoredData& stored = {}, bool stream = false);

}  // namespace millrace::data
