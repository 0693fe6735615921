#pragma once
// A golden file: tensors and hyper-parameters of a run that PyTorch made (tests/goldens/README.md).

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/safetensors.h"
#include "places.h"

namespace millrace::testing {

class Golden {
public:
    explicit Golden(const std::string& name)
        : file_(io::SafetensorsFile::open((source_root() / "tests/goldens" / (name + ".safetensors")).string()).value()) {}

    [[nodiscard]] bool has(const std::string& name) const { return file_.find(name) != nullptr; }
    [[nodiscard]] std::vector<std::int64_t> shape(const std::string& name) const { return file_.find(name)->shape; }
    [[nodiscard]] std::vector<float> floats(const std::string& name) const { return copied<float>(name); }
    [[nodiscard]] std::vector<std::int32_t> integers(const std::string& name) const { return copied<std::int32_t>(name); }
    [[nodiscard]] nlohmann::json meta(const std::string& key) const { return base::json_or_throw(file_.metadata().at(key)); }
    [[nodiscard]] std::set<std::string> names(const std::string& key) const { return meta(key).get<std::set<std::string>>(); }

private:
    template <class T>
    std::vector<T> copied(const std::string& name) const {
        const io::TensorView* tensor = file_.find(name);
        EXPECT_NE(tensor, nullptr) << name;
        if (tensor == nullptr) return {};
        std::vector<T> values(tensor->bytes / sizeof(T));
        std::memcpy(values.data(), tensor->data, tensor->bytes);
        return values;
    }
    io::SafetensorsFile file_;
};

template <class T>
std::vector<T> slice(const std::vector<T>& all, std::size_t index, std::size_t width) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index * width);
    return {begin, begin + static_cast<std::ptrdiff_t>(width)};
}

}  // namespace millrace::testing
