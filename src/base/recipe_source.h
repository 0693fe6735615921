#pragma once
// The layers above a recipe's file: --set flags and environment variables, read by the same rules as the file.

#include <string>
#include <string_view>
#include <vector>

#include "base/recipe_schema.h"
#include "base/recipe_toml.h"
#include "base/result.h"

namespace millrace::base {

/// What to do with a name that is not in the schema; `ignored` serves a first look with part of the schema.
enum class Unknown { refused, ignored };

/// "key=value" arguments. Text needs no quotes and a list no brackets: optim.lr=1e-3,2e-3. The same key twice is refused.
Result<std::vector<RawEntry>> read_flags(const std::vector<std::string>& flags, const Schema& schema,
                                         Unknown unknown = Unknown::refused);

/// "MILLRACE_TRAIN__EPOCHS=3" entries. A name without two underscores that is no key is ignored.
Result<std::vector<RawEntry>> read_environment(const std::vector<std::string>& variables, const Schema& schema,
                                               Unknown unknown = Unknown::refused);

/// "unknown key 'train.epoch'; did you mean train.epochs?"
Error unknown_key(std::string_view name, const std::string& place, const Schema& schema);

}  // namespace millrace::base
