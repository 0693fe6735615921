#include "base/recipe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/nearest.h"
#include "base/recipe_toml.h"
#include "base/recipe_value.h"
#include "base/split.h"
#include "base/units.h"

namespace millrace::base {
namespace {

/// Everything but the last part of a dotted name.
std::string table_of(std::string_view name) {
    const size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? std::string{} : std::string{name.substr(0, dot)};
}

nlohmann::ordered_json json_value(const RecipeKey& key, const RecipeValue& value) {
    return std::visit(
        [&](const auto& plain) -> nlohmann::ordered_json {
            using T = std::decay_t<decltype(plain)>;
            if constexpr (std::is_same_v<T, int64_t>) {
                if (key.kind == KeyKind::integer) return plain;
                const std::string literal = value_literal(key, value);
                return literal.substr(1, literal.size() - 2);  // "5s" without its quotes
            } else if constexpr (std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<double>>) {
                if (key.form == KeyForm::per_member && plain.size() == 1) return plain.front();
                return plain;
            } else {
                return plain;
            }
        },
        value);
}

constexpr std::string_view kPrefix = "MILLRACE_";

/// For messages: names and flags can be as long as memory allows.
std::string shortened(std::string_view text) {
    constexpr size_t kShown = 200;
    return text.size() <= kShown ? std::string{text} : std::string{text.substr(0, kShown)} + "...";
}

/// Text as one string value; refuses what TOML could not store, such as broken UTF-8.
Result<RawScalar> plain_text(std::string_view text) {
    const auto read = read_toml_literal(quoted_text(text));
    if (!read.ok()) return Error{"the value is not valid UTF-8"};
    return read.value().items.front();
}

/// A literal where it is one, else the words themselves, so that the type check can name what was written.
Result<RawValue> literal_or_text(std::string_view text) {
    const auto read = read_toml_literal(text);
    if (read.ok()) return read.value();
    MILLRACE_LET(words, plain_text(text));
    return RawValue{false, {words}};
}

Result<RawValue> value_from_words(const RecipeKey& key, const std::string& words) {
    const bool is_literal = !words.empty() && (words.front() == '"' || words.front() == '\'' || words.front() == '[');
    if (key.form == KeyForm::single) {
        const bool takes_words = key.kind != KeyKind::boolean && key.kind != KeyKind::integer && key.kind != KeyKind::real;
        if (!takes_words || (is_literal && words.front() != '[')) return literal_or_text(words);
        MILLRACE_LET(text, plain_text(words));
        return RawValue{false, {text}};
    }
    const bool is_list = key.form == KeyForm::list || words.find(',') != std::string::npos;
    return literal_or_text(is_list && !is_literal ? "[" + words + "]" : words);
}

std::string variable_key(std::string_view variable) {
    std::string out;
    for (size_t i = 0; i < variable.size(); ++i) {
        const bool is_dot = variable.substr(i, 2) == "__";
        const char c = variable[i];
        out += is_dot ? '.' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
        if (is_dot) ++i;
    }
    return out;
}

/// What to do with a name that is not in the schema; `ignored` serves a first look with part of the schema.
enum class Unknown { refused, ignored };

/// What stands behind "=", for the key that has it, at the end of `out`.
Status add_entry(const RecipeKey& key, std::string_view words, const std::string& place, std::vector<RawEntry>& out) {
    auto value = value_from_words(key, std::string{trimmed(words)});
    if (!value.ok()) return Error{fmt::format("{}: {}", key.name, value.error().message), place};
    out.push_back({key.name, std::move(value).value(), place, 0});
    return ok();
}

/// "key=value" arguments. Text needs no quotes and a list no brackets: optim.lr=1e-3,2e-3.
Status add_flags(const std::vector<std::string>& flags, const Schema& schema, Unknown unknown, std::vector<RawEntry>& out) {
    for (const std::string& flag : flags) {
        const std::string place = "--set " + shortened(flag);
        const size_t equals = flag.find('=');
        if (equals == std::string::npos) return Error{"a value is missing; write --set key=value", place};
        const std::string name{trimmed(std::string_view{flag}.substr(0, equals))};
        const RecipeKey* key = schema.find(name);
        if (key == nullptr && unknown == Unknown::refused) return unknown_key(name, place, schema);
        if (key != nullptr) MILLRACE_TRY(add_entry(*key, std::string_view{flag}.substr(equals + 1), place, out));
    }
    return ok();
}

/// "MILLRACE_TRAIN__EPOCHS=3" entries. A name without two underscores that is no key is ignored.
Status add_environment(const std::vector<std::string>& variables, const Schema& schema, Unknown unknown,
                       std::vector<RawEntry>& out) {
    for (const std::string& variable : variables) {
        const size_t equals = variable.find('=');
        if (!variable.starts_with(kPrefix) || equals == std::string::npos) continue;
        const std::string_view short_name = std::string_view{variable}.substr(kPrefix.size(), equals - kPrefix.size());
        const std::string name = variable_key(short_name);
        const std::string place = shortened(variable.substr(0, equals));
        const RecipeKey* key = schema.find(name);
        const bool is_ours = short_name.find("__") != std::string_view::npos;
        if (key == nullptr && is_ours && unknown == Unknown::refused) return unknown_key(name, place, schema);
        if (key != nullptr) MILLRACE_TRY(add_entry(*key, std::string_view{variable}.substr(equals + 1), place, out));
    }
    return ok();
}

/// Later layers replace earlier ones; each refuses its own mistakes even where a stronger layer would hide them.
Result<std::vector<RawEntry>> read_layers(std::string_view text, const std::string& place, const Schema& schema,
                                          const RecipeOverrides& overrides, Unknown unknown) {
    MILLRACE_LET(entries, read_toml(text, place));
    MILLRACE_TRY(add_environment(overrides.environment, schema, unknown, entries));
    MILLRACE_TRY(add_flags(overrides.flags, schema, unknown, entries));
    return entries;
}

}  // namespace

std::vector<std::string> recipe_environment() {
    std::vector<std::string> out;
    for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
        if (std::string_view{*variable}.starts_with(kPrefix)) out.emplace_back(*variable);
    return out;
}

Error unknown_key(std::string_view name, const std::string& place, const Schema& schema) {
    const std::vector<std::string> names = schema.names();
    std::vector<std::string> inside;
    for (const std::string& known : names)
        if (known.starts_with(std::string{name} + ".")) inside.push_back(known);
    if (!inside.empty())
        return Error{fmt::format("{} is a table, not a value; its keys are {}", name, fmt::join(inside, ", ")), place};
    const std::string close = nearest_name(name, names);
    const std::string hint = close.empty() ? "; millrace train --keys lists the keys" : fmt::format("; did you mean {}?", close);
    return Error{fmt::format("unknown key '{}'{}", shortened(name), hint), place};
}

Result<Recipe> Recipe::parse(std::string_view text, const std::string& place, const Schema& schema,
                             const RecipeOverrides& overrides) {
    MILLRACE_LET(entries, read_layers(text, place, schema, overrides, Unknown::refused));
    return of(entries, schema);
}

Result<Recipe> Recipe::of(const std::vector<RawEntry>& entries, const Schema& schema) {
    Recipe recipe;
    recipe.schema_ = std::make_shared<const Schema>(schema);
    for (const auto& [name, key] : schema.keys()) {
        const auto reread = read_toml_literal(value_literal(key, key.initial));
        MILLRACE_ASSERT(reread.ok(), "default of " + name);
        const auto sound = checked_value(key, reread.value());
        MILLRACE_ASSERT(sound.ok(), "default of " + name + ": " + sound.error().message);
        recipe.entries_[name] = {key.initial, "default"};
    }
    for (const RawEntry& raw : entries) {
        const RecipeKey* key = schema.find(raw.name);
        if (key == nullptr) return unknown_key(raw.name, raw.place, schema);
        auto value = checked_value(*key, raw.value);
        if (!value.ok()) return Error{value.error().message, raw.place};
        recipe.entries_[raw.name] = {std::move(value).value(), raw.place};
    }
    return recipe;
}

const Recipe::Entry& Recipe::entry(std::string_view name) const {
    const auto at = entries_.find(name);
    MILLRACE_ASSERT(at != entries_.end(), "the schema has no key " + std::string{name});
    return at->second;
}

template <class T>
const T& Recipe::get(std::string_view name, KeyKind kind) const {
    const T* value = std::get_if<T>(&entry(name).value);
    const RecipeKey* key = schema_->find(name);
    const bool is_kind = key->kind == kind || (kind == KeyKind::text && key->kind == KeyKind::choice);
    MILLRACE_ASSERT(value != nullptr && is_kind, fmt::format("{} is a {}", name, key->type_text()));
    return *value;
}

bool Recipe::boolean(std::string_view name) const { return get<bool>(name, KeyKind::boolean); }
const std::string& Recipe::text(std::string_view name) const { return get<std::string>(name, KeyKind::text); }

std::chrono::nanoseconds Recipe::duration(std::string_view name) const {
    return std::chrono::nanoseconds{get<int64_t>(name, KeyKind::duration)};
}

uint64_t Recipe::bytes(std::string_view name) const { return static_cast<uint64_t>(get<int64_t>(name, KeyKind::bytes)); }

namespace {
template <class T>
T of_member(const std::vector<T>& values, size_t member, std::string_view name) {
    if (values.size() == 1) return values.front();
    MILLRACE_ASSERT(member < values.size(), fmt::format("{} has {} values, member {}", name, values.size(), member));
    return values[member];
}
}  // namespace

int64_t Recipe::integer(std::string_view name, size_t member) const {
    const RecipeKey* key = schema_->find(name);
    if (key != nullptr && key->form == KeyForm::per_member) return of_member(integers(name), member, name);
    return get<int64_t>(name, KeyKind::integer);
}

double Recipe::real(std::string_view name, size_t member) const {
    const RecipeKey* key = schema_->find(name);
    if (key != nullptr && key->form == KeyForm::per_member) return of_member(reals(name), member, name);
    return get<double>(name, KeyKind::real);
}

const std::vector<int64_t>& Recipe::integers(std::string_view name) const {
    return get<std::vector<int64_t>>(name, KeyKind::integer);
}
const std::vector<double>& Recipe::reals(std::string_view name) const { return get<std::vector<double>>(name, KeyKind::real); }

Status Recipe::check_members(size_t members) const {
    for (const auto& [name, key] : schema_->keys()) {
        if (key.form != KeyForm::per_member) continue;
        const size_t count = key.kind == KeyKind::integer ? integers(name).size() : reals(name).size();
        if (count != 1 && count != members)
            return bad(name, fmt::format("{} has {} values but members = {}; give one{}", name, count, members,
                                         members == 1 ? "" : fmt::format(" or {}", members)));
    }
    return ok();
}

void Recipe::take(const Recipe& other, std::string_view name) { entries_[std::string{name}] = other.entry(name); }

const std::string& Recipe::place(std::string_view name) const { return entry(name).place; }

Error Recipe::bad(std::string_view name, std::string_view what) const {
    return Error{std::string{what}, place(name) == "default" ? fmt::format("{} (default)", name) : place(name)};
}

std::string Recipe::to_toml() const {
    std::map<std::string, std::string> tables;  // the empty name, the keys outside all tables, comes first as TOML wants it
    for (const auto& [name, stored] : entries_) {
        const std::string table = table_of(name);
        const std::string key = table.empty() ? name : name.substr(table.size() + 1);
        tables[table] += fmt::format("{} = {}\n", key, value_literal(*schema_->find(name), stored.value));
    }
    std::string out;
    for (const auto& [table, lines] : tables) {
        if (!out.empty()) out += "\n";
        if (!table.empty()) out += fmt::format("[{}]\n", table);
        out += lines;
    }
    return out;
}

std::string Recipe::to_json() const {
    nlohmann::ordered_json out = nlohmann::ordered_json::object();
    for (const auto& [name, stored] : entries_) {
        nlohmann::ordered_json* at = &out;
        for (const std::string& part : split(name, '.')) at = &(*at)[part];
        *at = json_value(*schema_->find(name), stored.value);
    }
    return json_text(out, 2);
}

std::vector<RecipeDifference> Recipe::differences(const Recipe& other) const {
    std::map<std::string, RecipeDifference> found;
    const auto literal = [](const Recipe& recipe, const std::string& name) -> std::string {
        const auto at = recipe.entries_.find(name);
        return at == recipe.entries_.end() ? "absent" : value_literal(*recipe.schema_->find(name), at->second.value);
    };
    for (const Recipe* recipe : {this, &other})
        for (const auto& [name, stored] : recipe->entries_) {
            RecipeDifference difference{name, literal(*this, name), literal(other, name)};
            if (difference.left != difference.right) found[name] = std::move(difference);
        }
    std::vector<RecipeDifference> out;
    out.reserve(found.size());
    for (auto& [name, difference] : found) out.push_back(std::move(difference));
    return out;
}

Result<bool> is_empty_recipe(std::string_view text, const std::string& place) {
    MILLRACE_LET(entries, read_toml(text, place));
    return entries.empty();
}

Result<std::optional<std::string>> peek_recipe_text(std::string_view text, const std::string& place, std::string_view name,
                                                    const RecipeOverrides& overrides) {
    Schema schema;
    schema.text(name, "", "");
    MILLRACE_LET(entries, read_layers(text, place, schema, overrides, Unknown::ignored));
    std::erase_if(entries, [&](const RawEntry& raw) { return raw.name != name; });
    MILLRACE_LET(recipe, Recipe::of(entries, schema));
    return entries.empty() ? std::nullopt : std::optional(recipe.text(name));
}

}  // namespace millrace::base
