#include "cli/key_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/recipe_value.h"
#include "report/terminal.h"

namespace millrace::cli {

std::string key_list(const base::Schema& schema, std::size_t width) {
    constexpr std::size_t kIndent = 4;
    const std::size_t inner = std::max(width, 2 * kIndent) - kIndent;
    std::string out;
    for (const auto& [name, key] : schema.keys()) {
        for (const std::string& line :
             report::wrapped(fmt::format("{} = {}", name, base::value_literal(key, key.initial)), width))
            out += line + "\n";
        const std::string range = key.range_text();
        const std::string meaning = fmt::format("{}; {}{}", key.help, key.type_text(), range.empty() ? "" : ", " + range);
        for (const std::string& line : report::wrapped(meaning, inner)) out += std::string(kIndent, ' ') + line + "\n";
    }
    return out;
}

}  // namespace millrace::cli
