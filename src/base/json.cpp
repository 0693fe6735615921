#include "base/json.h"

#include <nlohmann/json.hpp>

namespace millrace::base {
namespace {

template <class Json>
std::string text_of(const Json& json, int indent, bool ascii) {
    return json.dump(indent, ' ', ascii, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json json_from(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }
nlohmann::ordered_json ordered_json_from(std::string_view text) { return nlohmann::ordered_json::parse(text, nullptr, false); }
nlohmann::json json_or_throw(std::string_view text) { return nlohmann::json::parse(text); }
nlohmann::ordered_json ordered_json_or_throw(std::string_view text) { return nlohmann::ordered_json::parse(text); }
std::string json_text(const nlohmann::json& json, int indent) { return text_of(json, indent, false); }
std::string json_text(const nlohmann::ordered_json& json, int indent) { return text_of(json, indent, false); }
std::string ascii_json_text(const nlohmann::json& json) { return text_of(json, -1, true); }

bool nests_too_deep(std::string_view json) {
    constexpr int kDeepest = 256;
    int depth = 0;
    bool in_text = false;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const char letter = json[i];
        if (in_text) {
            if (letter == '\\')
                ++i;
            else if (letter == '"')
                in_text = false;
        } else if (letter == '"') {
            in_text = true;
        } else if (letter == '{' || letter == '[') {
            if (++depth > kDeepest) return true;
        } else if (letter == '}' || letter == ']') {
            --depth;
        }
    }
    return false;
}

}  // namespace millrace::base
