#pragma once
// Names of the parameters of layers that stand side by side.

#include <string>
#include <vector>

namespace millrace::nn {

inline std::vector<std::string> with_suffix(const std::vector<std::string>& prefixes, const std::string& suffix) {
    std::vector<std::string> names;
    names.reserve(prefixes.size());
    for (const std::string& prefix : prefixes) names.push_back(prefix + suffix);
    return names;
}

/// "layer", or "layer (x3)" for three.
inline std::string label_of(const std::vector<std::string>& names) {
    return names.size() == 1 ? names.front() : names.front() + " (x" + std::to_string(names.size()) + ")";
}

}  // namespace millrace::nn
