#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "data/batch_source.h"
#include "tape/program.h"

namespace millrace::data {

/// One program that gathers rows of a resident source, ready to run. The reference backend computes in f64, others in f32.
struct GatherRig {
    /// Declares and fills `source`, which must outlive the rig; members have the seeds 70, 71, ... `gather` appends the records.
    GatherRig(BatchSource& source, ops::DeviceKind kind, bool training, int members,
              const std::function<void(tape::Builder&)>& gather)
        : backend(ops::make_backend(kind, {}).value()) {
        tape::StoreOptions options;
        options.precision = kind == ops::DeviceKind::ref ? tape::Precision::f64 : tape::Precision::f32;
        options.members = members;
        store = std::make_unique<tape::Store>(*backend, options);
        EXPECT_TRUE(source.declare(*store).ok());
        EXPECT_TRUE(store->allocate().ok());
        EXPECT_TRUE(source.upload(*store).ok());
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < members; ++k) seeds.push_back(static_cast<std::uint64_t>(70 + k));
        store->initialize(seeds);
        tape::BuildOptions build;
        build.training = training;
        tape::Builder builder(*store, build);
        gather(builder);
        arena = std::make_unique<tape::Arena>(*backend);
        program = std::make_unique<tape::Program>("gather", *store, std::move(builder), *arena);
        EXPECT_TRUE(arena->allocate().ok());
        EXPECT_TRUE(program->prepare().ok());
    }
    std::unique_ptr<ops::Backend> backend;
    std::unique_ptr<tape::Store> store;
    std::unique_ptr<tape::Arena> arena;
    std::unique_ptr<tape::Program> program;
};

/// [K,1,rows,width] behind two columns that the gather leaves alone: the row stride is free.
inline tensor::View behind_two_columns(tape::Builder& builder, std::int32_t rows, std::int32_t width) {
    return builder.activation(rows, width + 2, "x", false).view.columns(2, width);
}

}  // namespace millrace::data
