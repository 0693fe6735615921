#pragma once
// JSON, of nlohmann's library. Texts are read and written here alone: each file that does so itself makes the compiler go through
// all of the library's reader and writer again.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace millrace::base {

/// Discarded where the text is no JSON.
nlohmann::json json_from(std::string_view text);
nlohmann::ordered_json ordered_json_from(std::string_view text);

/// The same; throws the library's parse_error.
nlohmann::json json_or_throw(std::string_view text);
nlohmann::ordered_json ordered_json_or_throw(std::string_view text);

/// Indented by `indent` spaces a level, on one line where that is negative. What is no UTF-8 is replaced, so this always
/// succeeds.
std::string json_text(const nlohmann::json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);
/// In ASCII alone.
std::string ascii_json_text(const nlohmann::json& json);

/// Whether JSON text opens more than 256 brackets within each other. The library writes documents out by recursion, so a hostile
/// one has to be refused before it comes to that; ours nest a handful.
bool nests_too_deep(std::string_view json);

}  // namespace millrace::base
