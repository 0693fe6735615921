#include "data/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::data {

const Field* find_field(const Fields& fields, std::string_view name) {
    const auto at = std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.name == name; });
    return at == fields.end() ? nullptr : &*at;
}

std::size_t field_index(const Fields& fields, std::string_view name) {
    const Field* field = find_field(fields, name);
    MILLRACE_ASSERT(field != nullptr, fmt::format("the source has no field {}", name));
    return static_cast<std::size_t>(field - fields.data());
}

std::string text_of(const Fields& fields) {
    std::string text;
    for (const Field& field : fields) {
        std::string width = field.width == 0 ? "any number of" : std::to_string(field.width);
        if (const Shape& shape = field.shape; shape.size() > 0)
            width = fmt::format("{} x {} x {}", shape.height, shape.width, shape.channels);
        text += fmt::format("{}{}: {} {}{}", text.empty() ? "" : ", ", field.name, width,
                            field.kind == Field::Kind::real ? "real" : "integer",
                            field.limit > 0 ? fmt::format(" below {}", field.limit) : "");
    }
    return text.empty() ? "nothing" : text;
}

base::Status require_fields(const Fields& has, const Fields& wants, const std::string& model) {
    for (const Field& want : wants) {
        const Field* found = find_field(has, want.name);
        if (found != nullptr && found->kind == want.kind && (want.width == 0 || want.width == found->width) &&
            (want.shape == Shape{} || found->shape == Shape{} || want.shape == found->shape))
            continue;
        return base::Error{fmt::format("{} wants the field {}; it wants {}, and the data has {}", model, want.name,
                                       text_of(wants), text_of(has))};
    }
    return base::ok();
}

}  // namespace millrace::data
