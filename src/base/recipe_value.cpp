#include "base/recipe_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/nearest.h"
#include "base/units.h"

namespace millrace::base {
namespace {

constexpr size_t kShownText = 80;  // of a value quoted in a message

std::string shown(const RawScalar& raw) {
    if (const auto* flag = std::get_if<bool>(&raw)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<int64_t>(&raw)) return fmt::format("{}", *whole);
    if (const auto* number = std::get_if<double>(&raw))
        return std::isfinite(*number) ? real_literal(*number) : fmt::format("{}", *number);
    if (const auto* foreign = std::get_if<ForeignValue>(&raw)) return foreign->what;
    const auto& text = std::get<std::string>(raw);
    return quoted_text(text.size() <= kShownText ? text : text.substr(0, kShownText) + "...");
}

Error wrong_type(const RecipeKey& key, const std::string& found) {
    const std::string type = key.type_text();
    const bool is_plain = type.starts_with("true") || type.starts_with("text") || type.starts_with("one of");
    return Error{fmt::format("{} must be {}{}, not {}", key.name, is_plain ? "" : "a ", type, found)};
}

Status check_range(const RecipeKey& key, double number, const std::string& as_written) {
    if (std::isnan(number) || std::isinf(number))
        return Error{fmt::format("{} = {} is not a finite number", key.name, as_written)};
    if (!key.allows(number))
        return Error{fmt::format("{} = {} is out of range; it must be {}", key.name, as_written, key.range_text())};
    return ok();
}

/// Devices compute with 32 bits: what these make 0, which often means "off", or infinite is no setting.
Status check_single_precision(const RecipeKey& key, double number, const std::string& as_written) {
    using Single = std::numeric_limits<float>;
    const double size = std::abs(number);
    if (size == 0 || (size >= Single::min() && size <= Single::max())) return ok();
    return Error{fmt::format("{} = {} is too {} for 32 bits; 0 or a size from {:.2g} to {:.2g} would be right", key.name,
                             as_written, size < 1 ? "small" : "large", Single::min(), Single::max())};
}

/// A whole number that came as text only because 64 bits do not hold it.
bool is_beyond_64_bits(std::string_view text) {
    if (text.starts_with('+')) text.remove_prefix(1);
    int64_t ignored = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), ignored);
    return failure == std::errc::result_out_of_range && end == text.data() + text.size();
}

Result<RecipeValue> checked_integer(const RecipeKey& key, const RawScalar& raw) {
    const auto* whole = std::get_if<int64_t>(&raw);
    if (whole == nullptr) {
        const auto* words = std::get_if<std::string>(&raw);
        if (words != nullptr && is_beyond_64_bits(*words))
            return Error{fmt::format("{} = {} does not fit into 64 bits{}", key.name, *words,
                                     key.range_text().empty() ? "" : "; it must be " + key.range_text())};
        return wrong_type(key, shown(raw));
    }
    MILLRACE_TRY(check_range(key, static_cast<double>(*whole), shown(raw)));
    return RecipeValue{*whole};
}

Result<RecipeValue> checked_real(const RecipeKey& key, const RawScalar& raw) {
    double number = 0;
    if (const auto* whole = std::get_if<int64_t>(&raw))
        number = static_cast<double>(*whole);
    else if (const auto* real = std::get_if<double>(&raw))
        number = *real;
    else
        return wrong_type(key, shown(raw));
    MILLRACE_TRY(check_range(key, number, shown(raw)));
    MILLRACE_TRY(check_single_precision(key, number, shown(raw)));
    return RecipeValue{number};
}

Result<RecipeValue> checked_text(const RecipeKey& key, const RawScalar& raw) {
    const auto* text = std::get_if<std::string>(&raw);
    if (text == nullptr) return wrong_type(key, shown(raw));
    if (text->find('\0') != std::string::npos) return Error{fmt::format("{} holds a zero byte", key.name)};
    if (key.kind != KeyKind::choice || std::find(key.choices.begin(), key.choices.end(), *text) != key.choices.end())
        return RecipeValue{*text};
    const std::string close = nearest_name(*text, key.choices);
    return Error{fmt::format("{} = {} is not one of {}{}", key.name, shown(raw), fmt::join(key.choices, ", "),
                             close.empty() ? "" : fmt::format("; did you mean {}?", close))};
}

Result<RecipeValue> checked_duration(const RecipeKey& key, const RawScalar& raw) {
    const auto* text = std::get_if<std::string>(&raw);
    if (text == nullptr) return wrong_type(key, shown(raw) + "; write for example \"5s\"");
    const auto parsed = parse_duration(*text);
    if (!parsed.ok()) return Error{fmt::format("{}: {}", key.name, parsed.error().message)};
    MILLRACE_TRY(check_range(key, static_cast<double>(parsed->count()) * 1e-9, shown(raw)));
    return RecipeValue{int64_t{parsed->count()}};
}

Result<RecipeValue> checked_bytes(const RecipeKey& key, const RawScalar& raw) {
    int64_t count = 0;
    if (const auto* whole = std::get_if<int64_t>(&raw)) {
        count = *whole;
        if (count < 0) return Error{fmt::format("{} = {} is negative; a size is not", key.name, count)};
    } else if (const auto* text = std::get_if<std::string>(&raw)) {
        const auto parsed = parse_bytes(*text);
        if (!parsed.ok()) return Error{fmt::format("{}: {}", key.name, parsed.error().message)};
        if (*parsed > uint64_t{std::numeric_limits<int64_t>::max()})
            return Error{fmt::format("{}: {} is too large", key.name, shown(raw))};
        count = static_cast<int64_t>(*parsed);
    } else {
        return wrong_type(key, shown(raw) + "; write for example \"64MiB\"");
    }
    MILLRACE_TRY(check_range(key, static_cast<double>(count), shown(raw)));
    return RecipeValue{count};
}

Result<RecipeValue> checked_single(const RecipeKey& key, const RawScalar& raw) {
    switch (key.kind) {
        case KeyKind::boolean:
            if (const auto* flag = std::get_if<bool>(&raw)) return RecipeValue{*flag};
            break;
        case KeyKind::integer: return checked_integer(key, raw);
        case KeyKind::real: return checked_real(key, raw);
        case KeyKind::text:
        case KeyKind::choice: return checked_text(key, raw);
        case KeyKind::duration: return checked_duration(key, raw);
        case KeyKind::bytes: return checked_bytes(key, raw);
    }
    return wrong_type(key, shown(raw));
}

template <class T>
Result<RecipeValue> checked_items(const RecipeKey& key, const RawValue& raw) {
    std::vector<T> out;
    for (const RawScalar& item : raw.items) {
        MILLRACE_LET(value, checked_single(key, item));
        out.push_back(std::get<T>(value));
    }
    return RecipeValue{std::move(out)};
}

template <class T, class Print>
std::string list_literal(const RecipeKey& key, const std::vector<T>& items, Print print) {
    if (key.form == KeyForm::per_member && items.size() == 1) return print(items.front());
    std::string out = "[";
    for (size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : ", ") + print(items[i]);
    return out + "]";
}

}  // namespace

Result<RecipeValue> checked_value(const RecipeKey& key, const RawValue& raw) {
    if (key.form == KeyForm::single) {
        if (raw.is_list) return wrong_type(key, "a list");
        return checked_single(key, raw.items.front());
    }
    if (key.form == KeyForm::list && !raw.is_list) return wrong_type(key, shown(raw.items.front()));
    if (raw.items.size() < key.shortest || raw.items.size() > key.longest)
        return Error{
            fmt::format("{} holds {} values; it takes from {} to {}", key.name, raw.items.size(), key.shortest, key.longest)};
    return key.kind == KeyKind::integer ? checked_items<int64_t>(key, raw) : checked_items<double>(key, raw);
}

std::string real_literal(double number) {
    std::string out = fmt::format("{}", number);
    if (out.find_first_of(".e") == std::string::npos) out += ".0";
    return out;
}

std::string quoted_text(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            out += {'\\', c};
        else if (code < 0x20 || code == 0x7f)
            out += fmt::format("\\u{:04x}", code);
        else
            out += c;
    }
    return out + '"';
}

std::string value_literal(const RecipeKey& key, const RecipeValue& value) {
    const auto print_integer = [](int64_t n) { return fmt::format("{}", n); };
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<int64_t>(&value)) {
        if (key.kind == KeyKind::duration) return quoted_text(exact_duration(std::chrono::nanoseconds{*whole}));
        if (key.kind == KeyKind::bytes) return quoted_text(exact_bytes(static_cast<uint64_t>(*whole)));
        return print_integer(*whole);
    }
    if (const auto* number = std::get_if<double>(&value)) return real_literal(*number);
    if (const auto* text = std::get_if<std::string>(&value)) return quoted_text(*text);
    if (const auto* wholes = std::get_if<std::vector<int64_t>>(&value)) return list_literal(key, *wholes, print_integer);
    return list_literal(key, std::get<std::vector<double>>(value), real_literal);
}

}  // namespace millrace::base
