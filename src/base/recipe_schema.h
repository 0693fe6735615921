#pragma once
// The typed list of keys that a recipe may hold. Schemas compose: a model adds its own keys below a prefix.
//
//     Schema schema;
//     schema.integer("train.epochs", 5, "passes over the training data").between(1, 100000);
//     schema.real("optim.lr", 1e-3, "learning rate").above(0).per_member();
//     schema.add("model", model_schema);
//
// A schema that contradicts itself (a key twice, a default out of its own range) is a mistake in our code and aborts.

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace::base {

enum class KeyKind { boolean, integer, real, text, choice, duration, bytes };

/// `per_member` accepts one value or a list with one value for each of the K members.
enum class KeyForm { single, list, per_member };

/// Lists and per-member keys hold vectors, the rest a single value; durations are nanoseconds and sizes bytes, both as int64_t.
using RecipeValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

struct RecipeKey {
    std::string name;  ///< dotted, words of [a-z0-9_]
    KeyKind kind = KeyKind::text;
    KeyForm form = KeyForm::single;
    RecipeValue initial;  ///< the default
    std::string help;     ///< one line
    std::vector<std::string> choices = {};
    double low = -std::numeric_limits<double>::infinity();  ///< of every number; a duration in seconds, a size in bytes
    double high = std::numeric_limits<double>::infinity();
    bool low_excluded = false;
    bool high_excluded = false;
    size_t shortest = 0;  ///< of a list
    size_t longest = 65536;
    bool commas_by_member = false;  ///< of a text: one value, or one of each member with commas between

    RecipeKey& between(double lowest, double highest);  ///< both included
    RecipeKey& at_least(double lowest);
    RecipeKey& above(double bound);  ///< bound excluded
    RecipeKey& below(double bound);  ///< bound excluded
    RecipeKey& length(size_t at_least, size_t at_most);
    RecipeKey& per_member();  ///< of a single integer or real
    RecipeKey& by_member();   ///< of a text: commas_by_member

    /// "whole number or list of whole numbers (one per member)"
    [[nodiscard]] std::string type_text() const;
    /// "from 1 to 100000", "above 0", empty when every value will do.
    [[nodiscard]] std::string range_text() const;
    /// Whether a number lies in the range.
    [[nodiscard]] bool allows(double number) const;
};

class Schema {
public:
    RecipeKey& boolean(std::string_view name, bool initial, std::string_view help) {
        return insert(name, KeyKind::boolean, initial, help);
    }
    RecipeKey& integer(std::string_view name, int64_t initial, std::string_view help) {
        return insert(name, KeyKind::integer, initial, help);
    }
    RecipeKey& real(std::string_view name, double initial, std::string_view help) {
        return insert(name, KeyKind::real, initial, help);
    }
    RecipeKey& text(std::string_view name, std::string_view initial, std::string_view help) {
        return insert(name, KeyKind::text, std::string{initial}, help);
    }
    RecipeKey& choice(std::string_view name, std::string_view initial, std::vector<std::string> choices, std::string_view help) {
        RecipeKey& key = insert(name, KeyKind::choice, std::string{initial}, help);
        key.choices = std::move(choices);
        return key;
    }
    RecipeKey& duration(std::string_view name, std::string_view initial, std::string_view help);  ///< initial as "5s"
    RecipeKey& bytes(std::string_view name, std::string_view initial, std::string_view help);     ///< initial as "64MiB"
    RecipeKey& integers(std::string_view name, std::vector<int64_t> initial, std::string_view help) {
        return insert(name, KeyKind::integer, std::move(initial), help, KeyForm::list);
    }
    RecipeKey& reals(std::string_view name, std::vector<double> initial, std::string_view help) {
        return insert(name, KeyKind::real, std::move(initial), help, KeyForm::list);
    }

    /// All keys of `other` as "prefix.name"; an empty prefix takes them as they are.
    Schema& add(std::string_view prefix, const Schema& other);

    /// Null when there is no such key.
    [[nodiscard]] const RecipeKey* find(std::string_view name) const;
    /// An existing key, to change its default or range (a preset does).
    RecipeKey& at(std::string_view name);
    [[nodiscard]] const std::map<std::string, RecipeKey, std::less<>>& keys() const { return keys_; }
    [[nodiscard]] std::vector<std::string> names() const;

    /// A table of every key with its type, default, range and meaning.
    [[nodiscard]] std::string help_text() const;

private:
    RecipeKey& insert(RecipeKey key);
    RecipeKey& insert(std::string_view name, KeyKind kind, RecipeValue initial, std::string_view help,
                      KeyForm form = KeyForm::single) {
        return insert({std::string{name}, kind, form, std::move(initial), std::string{help}});
    }
    std::map<std::string, RecipeKey, std::less<>> keys_;
};

}  // namespace millrace::base
