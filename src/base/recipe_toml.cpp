#include "base/recipe_toml.h"

#include <fmt/core.h>

#include <algorithm>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace millrace::base {
namespace {

bool is_bare(std::string_view part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
}

RawScalar raw_scalar(const toml::node& node) {
    switch (node.type()) {
        case toml::node_type::boolean: return node.as_boolean()->get();
        case toml::node_type::integer: return node.as_integer()->get();
        case toml::node_type::floating_point: return node.as_floating_point()->get();
        case toml::node_type::string: return node.as_string()->get();
        case toml::node_type::table: return ForeignValue{"a table"};
        case toml::node_type::array: return ForeignValue{"a list inside a list"};
        default: return ForeignValue{"a date or time"};
    }
}

RawValue raw_value(const toml::node& node) {
    RawValue out;
    if (const toml::array* list = node.as_array()) {
        out.is_list = true;
        for (const toml::node& item : *list) out.items.push_back(raw_scalar(item));
    } else {
        out.items.push_back(raw_scalar(node));
    }
    return out;
}

void flatten(const toml::table& table, const std::string& prefix, const std::string& place, ListsOfTables lists,
             std::vector<RawEntry>& out) {
    for (const auto& [key, node] : table) {
        const std::string part = is_bare(key.str()) ? std::string{key.str()} : quoted_text(key.str());
        const std::string name = prefix.empty() ? part : prefix + "." + part;
        const toml::table* inner = node.as_table();
        if (inner != nullptr && !inner->empty()) {
            flatten(*inner, name, place, lists, out);
            continue;
        }
        const toml::array* list = node.as_array();
        if (lists == ListsOfTables::opened && list != nullptr && !list->empty() && list->is_homogeneous<toml::table>()) {
            for (size_t i = 0; i < list->size(); ++i)
                flatten(*list->get_as<toml::table>(i), fmt::format("{}[{}]", name, i), place, lists, out);
            continue;
        }
        const size_t line = key.source().begin.line;
        out.push_back({name, raw_value(node), fmt::format("{}:{}", place, line), line});
    }
}

constexpr size_t kDeepest = 16;  ///< parts of a key, brackets inside of brackets; recipes have two of either

/// Where the string that begins at `at` ends: behind its closing quotes, or, where it is broken, at the end of its line or text.
size_t end_of_string(std::string_view text, size_t at) {
    const char quote = text[at];
    const bool is_long = text.substr(at, 3) == std::string(3, quote);
    const std::string end(is_long ? 3 : 1, quote);
    for (at += end.size(); at < text.size(); ++at) {
        if (text[at] == '\\' && quote == '"') {
            ++at;
        } else if (text[at] == '\n' && !is_long) {
            return at;
        } else if (text.substr(at, end.size()) == end) {
            at += end.size();
            for (int more = 0; is_long && more < 2 && text.substr(at, 1) == end.substr(0, 1); ++more) ++at;  // of its content
            return at;
        }
    }
    return text.size();
}

/// Tables of tables are parsed, walked and freed by recursion, so text that would nest them deeply is refused before. Gives the
/// line where that begins, or 0.
size_t too_deep_line(std::string_view text) {
    size_t parts = 0, brackets = 0;
    for (size_t at = 0; at < text.size();) {
        const char c = text[at];
        if (c == '"' || c == '\'') {
            at = end_of_string(text, at);
            continue;
        }
        if (c == '#') {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        if (c == '.') ++parts;
        if (c == '[' || c == '{') ++brackets;
        if ((c == ']' || c == '}') && brackets > 0) --brackets;
        if (c == '=' || c == ',' || c == '[' || c == '{' || c == '\n') parts = 0;
        if (parts >= kDeepest || brackets > kDeepest)
            return 1 + static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
        ++at;
    }
    return 0;
}

}  // namespace

Result<std::vector<RawEntry>> read_toml(std::string_view text, const std::string& place, ListsOfTables lists) {
    if (const size_t line = too_deep_line(text); line > 0)
        return Error{fmt::format("tables or lists are nested more than {} deep; a key looks like train.epochs", kDeepest),
                     fmt::format("{}:{}", place, line)};
    const toml::parse_result parsed = toml::parse(text, place);
    if (!parsed) {
        const toml::parse_error& error = parsed.error();
        return Error{std::string{error.description()}, fmt::format("{}:{}", place, error.source().begin.line)};
    }
    std::vector<RawEntry> out;
    flatten(parsed.table(), "", place, lists, out);
    std::stable_sort(out.begin(), out.end(), [](const RawEntry& a, const RawEntry& b) { return a.line < b.line; });
    return out;
}

Result<RawValue> read_toml_literal(std::string_view text) {
    const Error refused{"not a value"};
    if (text.find_first_of("\r\n") != std::string_view::npos) return refused;  // could smuggle in a second key
    if (too_deep_line(text) > 0) return refused;
    const toml::parse_result parsed = toml::parse(fmt::format("value = {}", text));
    if (!parsed) return refused;
    return raw_value(*parsed.table().get("value"));
}

}  // namespace millrace::base
