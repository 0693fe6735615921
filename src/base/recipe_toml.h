#pragma once
// Reads TOML into flat entries with their lines. What the keys mean is not known here.

#include <string>
#include <string_view>
#include <vector>

#include "base/recipe_value.h"
#include "base/result.h"

namespace millrace::base {

struct RawEntry {
    std::string name;  ///< dotted; a part that needed quotes keeps them
    RawValue value;
    std::string place;  ///< "recipe.toml:12"
    size_t line = 0;
};

/// All values of a document in the order of their lines; empty tables appear as entries. Broken TOML, duplicate keys and invalid
/// UTF-8 are errors at "place:line".
/// A list of tables is one value, or, when asked for, an entry "list[0].key" for each key of its tables.
enum class ListsOfTables { whole, opened };
Result<std::vector<RawEntry>> read_toml(std::string_view text, const std::string& place,
                                        ListsOfTables lists = ListsOfTables::whole);

/// One literal, as on a command line: 3, 1e-3, true, "text", [1, 2].
Result<RawValue> read_toml_literal(std::string_view text);

}  // namespace millrace::base
