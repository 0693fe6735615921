#include "io/json_nesting.h"

#include <cstddef>

namespace millrace::io {

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

}  // namespace millrace::io
