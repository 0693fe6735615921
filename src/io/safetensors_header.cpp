#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "io/json_nesting.h"

namespace millrace::io {
namespace {

using HeaderJson = nlohmann::json;

Error header_holds(const Path& place, std::string_view what) {
    return Error{fmt::format("the header holds {}", what), place.string()};
}

/// An error for `value`, which stands at `name` and is of a type that does not belong there.
Error misplaced(const Path& place, const HeaderJson& value, std::string_view name) {
    const char* what = value.is_null()              ? "null"
                       : value.is_boolean()         ? "a boolean"
                       : value.is_number_float()    ? "a fraction"
                       : value.is_number_unsigned() ? "a number"
                       : value.is_number_integer()  ? "a negative number"
                       : value.is_string()          ? "a string"
                       : value.is_object()          ? "an object"
                                                    : "a list";
    return header_holds(place, fmt::format("{} where it does not belong, at '{}'", what, name));
}

/// Refuses what a document would hide or suffer from: it keeps the last of two equal names and any depth of nesting.
Result<HeaderJson> parse_document(std::string_view text, const Path& place) {
    if (nests_too_deep(text)) return header_holds(place, "brackets that are nested too deeply");
    std::vector<std::set<std::string>> open;  // names of the objects around
    std::string twice;
    const auto watch = [&](int, HeaderJson::parse_event_t event, HeaderJson& parsed) {
        if (event == HeaderJson::parse_event_t::object_start) open.emplace_back();
        if (event == HeaderJson::parse_event_t::object_end) open.pop_back();
        if (event == HeaderJson::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second && twice.empty())
            twice = fmt::format("the name '{}' twice", parsed.get<std::string>());
        return true;
    };
    try {
        HeaderJson document = HeaderJson::parse(text, watch);
        if (!twice.empty()) return header_holds(place, twice);
        return document;
    } catch (const HeaderJson::parse_error& problem) {
        return header_holds(place, fmt::format("text that is not JSON at byte {}", problem.byte));
    } catch (const HeaderJson::out_of_range&) {
        return header_holds(place, "a number that is too large");
    }
}

Result<HeaderEntry> header_entry(const std::string& name, const HeaderJson& tensor, const Path& place) {
    if (!tensor.is_object()) return misplaced(place, tensor, name);
    for (const auto& [key, value] : tensor.items())
        if (key != "dtype" && key != "shape" && key != "data_offsets")
            return header_holds(place, fmt::format("tensor '{}' with the unknown key '{}'", name, key));
    if (tensor.size() != 3) return header_holds(place, fmt::format("tensor '{}' without dtype, shape or data_offsets", name));
    const HeaderJson &type = tensor["dtype"], &shape = tensor["shape"], &offsets = tensor["data_offsets"];
    if (!type.is_string()) return misplaced(place, type, name);
    for (const HeaderJson* list : {&shape, &offsets}) {
        if (!list->is_array()) return misplaced(place, *list, name);
        for (const HeaderJson& number : *list)
            if (!number.is_number_unsigned()) return misplaced(place, number, name);
    }
    if (offsets.size() != 2)
        return header_holds(place, fmt::format("data_offsets with {} than two numbers", offsets.size() > 2 ? "more" : "fewer"));
    HeaderEntry entry{name, type.get<std::string>(), {}, offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()};
    for (const HeaderJson& extent : shape) {
        if (extent.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
            return header_holds(place, "a dimension that does not fit 63 bits");
        entry.shape.push_back(extent.get<std::int64_t>());
    }
    return entry;
}

}  // namespace

Result<Header> parse_header(std::string_view json, const Path& place) {
    if (json.empty() || json.front() != '{')
        return Error{"the header does not begin with '{': not a safetensors file", place.string()};
    MILLRACE_LET(document, parse_document(json, place));
    Header header;
    for (const auto& [name, value] : document.items()) {
        if (name != "__metadata__") {
            MILLRACE_SET(header.entries.emplace_back(), header_entry(name, value, place));
            continue;
        }
        if (!value.is_object()) return misplaced(place, value, name);
        for (const auto& [key, text] : value.items()) {
            if (!text.is_string()) return misplaced(place, text, name);
            header.metadata[key] = text.get<std::string>();
        }
    }
    return header;
}

}  // namespace millrace::io
