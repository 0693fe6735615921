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

}  // namespace millrace::base
