#pragma once
// One value of a recipe: from what a file or a command line holds to what its key allows, and back to text.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/recipe_schema.h"
#include "base/result.h"

namespace millrace::base {

/// Something a recipe has no use for, in words: "a date", "a table".
struct ForeignValue {
    std::string what;
};

using RawScalar = std::variant<bool, int64_t, double, std::string, ForeignValue>;

/// A value as written, before its key has been asked.
struct RawValue {
    bool is_list = false;
    std::vector<RawScalar> items;  ///< exactly one unless is_list
};

/// The value as its key wants it, or what is wrong with it (without a place). A whole number will do where a number is wanted,
/// not the other way round; NaN and infinities are refused everywhere.
Result<RecipeValue> checked_value(const RecipeKey& key, const RawValue& raw);

/// A valid value as a TOML literal that reads back to the same value.
std::string value_literal(const RecipeKey& key, const RecipeValue& value);

/// Text as a TOML basic string with its quotes.
std::string quoted_text(std::string_view text);

/// A number as a TOML float, shortest form that reads back to the same bits.
std::string real_literal(double number);

}  // namespace millrace::base
