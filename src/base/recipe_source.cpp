#include "base/recipe_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/recipe.h"
#include "base/units.h"

namespace millrace::base {
namespace {

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

Result<RawEntry> entry_from_words(const RecipeKey& key, const std::string& words, const std::string& place) {
    auto value = value_from_words(key, words);
    if (!value.ok()) return Error{fmt::format("{}: {}", key.name, value.error().message), place};
    return RawEntry{key.name, std::move(value).value(), place, 0};
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

Result<std::vector<RawEntry>> read_flags(const std::vector<std::string>& flags, const Schema& schema, Unknown unknown) {
    std::vector<RawEntry> out;
    for (const std::string& flag : flags) {
        const std::string place = "--set " + shortened(flag);
        const size_t equals = flag.find('=');
        if (equals == std::string::npos) return Error{"a value is missing; write --set key=value", place};
        const std::string name{trimmed(std::string_view{flag}.substr(0, equals))};
        const RecipeKey* key = schema.find(name);
        if (key == nullptr && unknown == Unknown::ignored) continue;
        if (key == nullptr) return unknown_key(name, place, schema);
        MILLRACE_LET(entry, entry_from_words(*key, std::string{trimmed(std::string_view{flag}.substr(equals + 1))}, place));
        out.push_back(std::move(entry));
    }
    return out;
}

Result<std::vector<RawEntry>> read_environment(const std::vector<std::string>& variables, const Schema& schema, Unknown unknown) {
    std::vector<RawEntry> out;
    for (const std::string& variable : variables) {
        const size_t equals = variable.find('=');
        if (!variable.starts_with(kPrefix) || equals == std::string::npos) continue;
        const std::string_view short_name = std::string_view{variable}.substr(kPrefix.size(), equals - kPrefix.size());
        const std::string name = variable_key(short_name);
        const std::string place = shortened(variable.substr(0, equals));
        const RecipeKey* key = schema.find(name);
        if (key == nullptr) {
            const bool is_ours = short_name.find("__") != std::string_view::npos;
            if (!is_ours || unknown == Unknown::ignored) continue;
            return unknown_key(name, place, schema);
        }
        MILLRACE_LET(entry, entry_from_words(*key, std::string{trimmed(std::string_view{variable}.substr(equals + 1))}, place));
        out.push_back(std::move(entry));
    }
    return out;
}

}  // namespace millrace::base
