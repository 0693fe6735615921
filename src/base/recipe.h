#pragma once
// A recipe: every key of a schema with a checked value and where it came from. Flags (--set) beat environment variables beat the
// file beats the schema's default. Unknown, duplicate, wrongly typed, out-of-range and non-finite values are refused with their
// place and the nearest valid name.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe_schema.h"
#include "base/result.h"

namespace millrace::base {

struct RawEntry;

/// What stands above the file.
struct RecipeOverrides {
    std::vector<std::string> flags;        ///< the arguments of --set: "train.epochs=3"
    std::vector<std::string> environment;  ///< "MILLRACE_TRAIN__EPOCHS=3"; two underscores stand for the dot
};

/// The variables of this process that begin with MILLRACE_.
std::vector<std::string> recipe_environment();

/// "unknown key 'train.epoch'; did you mean train.epochs?"
Error unknown_key(std::string_view name, const std::string& place, const Schema& schema);

/// A key whose value differs between two recipes; a key that one of them lacks is shown as "absent".
struct RecipeDifference {
    std::string name;
    std::string left;
    std::string right;
};

class Recipe {
public:
    /// Reads TOML text; `place` names it in messages. A variable with __ in its name must be a key; others (MILLRACE_LOG) may
    /// not be.
    static Result<Recipe> parse(std::string_view text, const std::string& place, const Schema& schema,
                                const RecipeOverrides& overrides = {});
    /// The same of entries that were read before; of two with one name the later one holds.
    static Result<Recipe> of(const std::vector<RawEntry>& entries, const Schema& schema);

    [[nodiscard]] bool has(std::string_view name) const { return entries_.contains(name); }

    // Typed values. A name that is not in the schema, or of another type, is a mistake in our code and aborts.
    [[nodiscard]] bool boolean(std::string_view name) const;
    [[nodiscard]] const std::string& text(std::string_view name) const;  ///< text and choices
    [[nodiscard]] std::chrono::nanoseconds duration(std::string_view name) const;
    [[nodiscard]] uint64_t bytes(std::string_view name) const;
    /// Per-member keys: the member's own value, or the one value for all. Call check_members(K) before asking.
    [[nodiscard]] int64_t integer(std::string_view name, size_t member = 0) const;
    [[nodiscard]] double real(std::string_view name, size_t member = 0) const;
    /// Lists; also per-member keys, as written (one value or K).
    [[nodiscard]] const std::vector<int64_t>& integers(std::string_view name) const;
    [[nodiscard]] const std::vector<double>& reals(std::string_view name) const;

    /// Replaces the value of a key, and where it came from, by that of a recipe with the same schema.
    void take(const Recipe& other, std::string_view name);

    /// Every per-member key has one value or exactly `members`.
    [[nodiscard]] Status check_members(size_t members) const;

    /// Where the value came from: "recipe.toml:12", "--set train.epochs=3", "MILLRACE_SEED", "default".
    [[nodiscard]] const std::string& place(std::string_view name) const;
    [[nodiscard]] bool is_set(std::string_view name) const { return place(name) != "default"; }
    /// An error about one key, for rules that span keys: bad(name, "train.batch = 64 exceeds the 50 images") is at the key's
    /// place.
    [[nodiscard]] Error bad(std::string_view name, std::string_view what) const;

    /// Every key, also the defaults, in a fixed order; parsing it with the same schema gives an equal recipe.
    [[nodiscard]] std::string to_toml() const;
    /// The same as nested JSON objects; durations and sizes are texts as in TOML.
    [[nodiscard]] std::string to_json() const;

    [[nodiscard]] std::vector<RecipeDifference> differences(const Recipe& other) const;
    /// Equal values; where they came from does not matter.
    bool operator==(const Recipe& other) const { return differences(other).empty(); }

private:
    struct Entry {
        RecipeValue value;
        std::string place;
    };
    template <class T>
    const T& get(std::string_view name, KeyKind kind) const;
    const Entry& entry(std::string_view name) const;

    std::shared_ptr<const Schema> schema_;
    std::map<std::string, Entry, std::less<>> entries_;
};

/// What a text key (such as the name of the model) will be, before the schema that depends on it is known. Empty when it is not
/// set.
Result<std::optional<std::string>> peek_recipe_text(std::string_view text, const std::string& place, std::string_view name,
                                                    const RecipeOverrides& overrides = {});

/// Whether a recipe's text sets no key at all.
Result<bool> is_empty_recipe(std::string_view text, const std::string& place);

}  // namespace millrace::base
