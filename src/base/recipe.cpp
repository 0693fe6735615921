#include "base/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/recipe_source.h"
#include "base/recipe_toml.h"
#include "base/recipe_value.h"
#include "base/split.h"

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

/// Later layers replace earlier ones; each refuses its own mistakes even where a stronger layer would hide them.
Result<std::vector<RawEntry>> read_layers(std::string_view text, const std::string& place, const Schema& schema,
                                          const RecipeOverrides& overrides, Unknown unknown) {
    MILLRACE_LET(entries, read_toml(text, place));
    MILLRACE_LET(from_environment, read_environment(overrides.environment, schema, unknown));
    MILLRACE_LET(from_flags, read_flags(overrides.flags, schema, unknown));
    for (std::vector<RawEntry>* layer : {&from_environment, &from_flags}) std::ranges::move(*layer, std::back_inserter(entries));
    return entries;
}

}  // namespace

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
