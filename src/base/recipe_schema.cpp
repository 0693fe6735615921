#include "base/recipe_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/recipe_value.h"
#include "base/result.h"
#include "base/units.h"

namespace millrace::base {
namespace {

bool is_well_formed(std::string_view name) {
    if (name.empty() || name.front() == '.' || name.back() == '.') return false;
    if (name.find("..") != std::string_view::npos) return false;
    // Two underscores stand for the dot in environment variables.
    if (name.find("__") != std::string_view::npos) return false;
    return std::all_of(name.begin(), name.end(),
                       [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.'; });
}

std::string one_type(const RecipeKey& key) {
    switch (key.kind) {
        case KeyKind::boolean: return "true or false";
        case KeyKind::integer: return "whole number";
        case KeyKind::real: return "number";
        case KeyKind::text: return "text";
        case KeyKind::choice: return fmt::format("one of {}", fmt::join(key.choices, ", "));
        case KeyKind::duration: return "duration";
        case KeyKind::bytes: return "size";
    }
    return {};
}

std::string bound_text(const RecipeKey& key, double bound) {
    if (key.kind == KeyKind::duration) return exact_duration(std::chrono::nanoseconds{std::llround(bound * 1e9)});
    if (key.kind == KeyKind::bytes) return exact_bytes(static_cast<uint64_t>(bound));
    return fmt::format("{}", bound);
}

}  // namespace

RecipeKey& RecipeKey::between(double lowest, double highest) {
    MILLRACE_ASSERT(lowest <= highest, name);
    high = highest;
    return at_least(lowest);
}

RecipeKey& RecipeKey::at_least(double lowest) {
    low = lowest;
    return *this;
}

RecipeKey& RecipeKey::above(double bound) {
    low_excluded = true;
    return at_least(bound);
}

RecipeKey& RecipeKey::below(double bound) {
    high = bound;
    high_excluded = true;
    return *this;
}

RecipeKey& RecipeKey::length(size_t at_least, size_t at_most) {
    MILLRACE_ASSERT(form == KeyForm::list && at_least <= at_most, name);
    shortest = at_least;
    longest = at_most;
    return *this;
}

RecipeKey& RecipeKey::by_member() {
    commas_by_member = true;
    return *this;
}

RecipeKey& RecipeKey::per_member() {
    MILLRACE_ASSERT(form == KeyForm::single && (kind == KeyKind::integer || kind == KeyKind::real), name);
    form = KeyForm::per_member;
    shortest = 1;
    if (kind == KeyKind::integer)
        initial = std::vector<int64_t>{std::get<int64_t>(initial)};
    else
        initial = std::vector<double>{std::get<double>(initial)};
    return *this;
}

std::string RecipeKey::type_text() const {
    std::string one = one_type(*this);
    if (form == KeyForm::single) return one;
    return fmt::format(fmt::runtime(form == KeyForm::list ? "list of {}s" : "{0} or list of {0}s (one per member)"), one);
}

std::string RecipeKey::range_text() const {
    const bool has_low = std::isfinite(low), has_high = std::isfinite(high);
    if (has_low && has_high && !low_excluded && !high_excluded)
        return fmt::format("from {} to {}", bound_text(*this, low), bound_text(*this, high));
    std::string out;
    if (has_low) out = fmt::format("{} {}", low_excluded ? "above" : "at least", bound_text(*this, low));
    if (has_high)
        out += fmt::format("{}{} {}", has_low ? " and " : "", high_excluded ? "below" : "at most", bound_text(*this, high));
    return out;
}

bool RecipeKey::allows(double number) const {
    const bool above_low = low_excluded ? number > low : number >= low;
    const bool below_high = high_excluded ? number < high : number <= high;
    return above_low && below_high;
}

RecipeKey& Schema::insert(RecipeKey key) {
    MILLRACE_ASSERT(is_well_formed(key.name), key.name);
    const std::string name = key.name;
    for (const auto& [other, unused] : keys_) {
        MILLRACE_ASSERT(other != name, "key added twice: " + name);
        const bool nested = other.starts_with(name + ".") || name.starts_with(other + ".");
        MILLRACE_ASSERT(!nested, "a key cannot also be a table: " + name + ", " + other);
    }
    return keys_.emplace(name, std::move(key)).first->second;
}

RecipeKey& Schema::duration(std::string_view name, std::string_view initial, std::string_view help) {
    return insert(name, KeyKind::duration, int64_t{parse_duration(initial).value().count()}, help);
}

RecipeKey& Schema::bytes(std::string_view name, std::string_view initial, std::string_view help) {
    return insert(name, KeyKind::bytes, static_cast<int64_t>(parse_bytes(initial).value()), help);
}

Schema& Schema::add(std::string_view prefix, const Schema& other) {
    for (const auto& [name, key] : other.keys_) {
        RecipeKey copy = key;
        if (!prefix.empty()) copy.name = fmt::format("{}.{}", prefix, name);
        insert(std::move(copy));
    }
    return *this;
}

const RecipeKey* Schema::find(std::string_view name) const {
    const auto at = keys_.find(name);
    return at == keys_.end() ? nullptr : &at->second;
}

RecipeKey& Schema::at(std::string_view name) {
    const auto found = keys_.find(name);
    MILLRACE_ASSERT(found != keys_.end(), "no such key: " + std::string{name});
    return found->second;
}

std::vector<std::string> Schema::names() const {
    std::vector<std::string> out;
    for (const auto& [name, key] : keys_) out.push_back(name);
    return out;
}

std::string Schema::help_text() const {
    std::vector<std::vector<std::string>> rows = {{"key", "type", "default", "meaning"}};
    for (const auto& [name, key] : keys_) {
        const std::string range = key.range_text();
        const std::string meaning = range.empty() ? key.help : fmt::format("{} ({})", key.help, range);
        rows.push_back({name, key.type_text(), value_literal(key, key.initial), meaning});
    }
    size_t width[3] = {};
    for (const auto& row : rows)
        for (size_t column = 0; column < 3; ++column) width[column] = std::max(width[column], row[column].size());
    std::string out;
    for (const auto& row : rows)
        out += fmt::format("{:<{}}  {:<{}}  {:<{}}  {}\n", row[0], width[0], row[1], width[1], row[2], width[2], row[3]);
    return out;
}

}  // namespace millrace::base
