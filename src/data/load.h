#pragma once
// The choice of loader: the data of a kind, loaded as the recipe says.

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/recipe.h"
#include "data/batch_source.h"
#include "data/fields.h"
#include "data/text/text_set.h"

namespace millrace::data {

struct LoadedData {
    DataIdentity identity;
    std::unique_ptr<BatchSource> source;
    std::string unit = {};             ///< what its samples are called
    std::vector<Domain> domains = {};  ///< in the order in which they are learned; empty: the data is one whole
};

/// The keys of [data] in a recipe.
void add_data_keys(base::Schema& schema, DataKind kind);

/// Whether a set that would take so much device memory is streamed. Asked before features of recordings are read, and behind the
/// reading of samples; of kinds that can be streamed (can_stream()).
using ChooseStream = std::function<base::Result<bool>(std::uint64_t bytes)>;

/// All of the text at `path` as a test part, numbered by the tokenizer of a checkpoint.
base::Result<std::shared_ptr<const TextSet>> load_whole_text(const base::Recipe& recipe, const io::Path& path,
                                                             const StoredData& stored);
/// A text as windows of `length` tokens.
LoadedData windows_of(std::shared_ptr<const TextSet> set, std::int32_t length, const TextStages& stages = {});

/// Loads data.path. Errors are at that key; without `training` they say how to name another folder. `token_keys` names the keys
/// (`<token_keys>.enabled`, `.vocabulary`, `.max_tokens`) that ask for texts as tokens; empty: the model reads no texts. They are
/// numbered by the tokenizer in `stored`, or by one trained on them when there is none; so is a text. Domains of a text get an
/// equal number of train.epochs each. Without `stream` all data is resident.
base::Result<LoadedData> load_data(const base::Recipe& recipe, DataKind kind, const std::string& token_keys, bool training,
                                   const StoredData& stored = {}, const ChooseStream& stream = {});

/// An error of what was loaded is one of data.path. Without `training` it says how to name another place.
template <class T>
base::Result<T> at_path(const base::Recipe& recipe, bool training, base::Result<T> loaded) {
    if (loaded.ok()) return loaded;
    base::Error error =
        recipe
            .bad("data.path",
                 fmt::format("cannot load data.path = \"{}\"{}", recipe.text("data.path"),
                             training ? "" : "; --data names the folder when it has moved or the path is not from here"))
            .because(loaded.error());
    error.exit_status = loaded.error().exit_status;
    return error;
}

/// The keys of [data] that families of samples have: of pictures, arrays, tables or IDX files, whichever lie at data.path.
void add_sample_keys(base::Schema& schema);
/// Adds data.validation and data.test.
void add_part_keys(base::Schema& schema, const std::string& of);

/// As load_data().
base::Result<LoadedData> load_samples(const base::Recipe& recipe, bool training, const StoredData& stored,
                                      const ChooseStream& choose);

}  // namespace millrace::data
