#pragma once
// Checkpoints whose values tell where they are from.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace millrace::io {

/// A checkpoint in which every value tells the step and the member.
struct Content {
    std::vector<std::vector<float>> weights, moments;
    Checkpoint checkpoint;

    explicit Content(std::uint64_t step, std::size_t members = 1, std::size_t size = 300) {
        checkpoint.step = step;
        checkpoint.state = fmt::format(R"({{"epoch": {}, "best": 0.5}})", step);
        const auto extent = static_cast<std::int64_t>(size);
        for (std::size_t k = 0; k < members; ++k) {
            weights.emplace_back(size, static_cast<float>(step * 10 + k));
            moments.emplace_back(2 * size, static_cast<float>(step * 10 + k) + 0.5f);
        }
        for (std::size_t k = 0; k < members; ++k)
            checkpoint.members.push_back(
                {{float_tensor("w", {extent}, weights[k])}, {float_tensor("exp_avg.w", {2, extent}, moments[k])}});
    }
};

inline void expect_step(const LoadedCheckpoint& loaded, std::uint64_t step, std::size_t members, std::size_t size = 300) {
    EXPECT_EQ(loaded.step, step);
    EXPECT_NE(loaded.state.find(fmt::format("\"epoch\": {}", step)), std::string::npos);
    ASSERT_EQ(loaded.members.size(), members);
    const auto extent = static_cast<std::int64_t>(size);
    for (std::size_t k = 0; k < members; ++k) {
        std::vector<float> w(size), m(2 * size);
        ASSERT_TRUE(loaded.members[k].model.copy_floats("w", std::vector{extent}, w).ok());
        ASSERT_TRUE(loaded.members[k].optimizer.has_value());
        ASSERT_TRUE(loaded.members[k].optimizer->copy_floats("exp_avg.w", std::vector{std::int64_t{2}, extent}, m).ok());
        EXPECT_EQ(w, std::vector<float>(size, static_cast<float>(step * 10 + k)));
        EXPECT_EQ(m, std::vector<float>(2 * size, static_cast<float>(step * 10 + k) + 0.5f));
    }
}

inline std::vector<std::string> names_in(const Path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

}  // namespace millrace::io
