#include "diagnose/answer/diagnosis.h"

#include <gtest/gtest.h>

#include "diagnose/reading/gpu_models.h"
#include "diagnose/simulated_cases.h"

namespace millrace::diagnose {
namespace {

constexpr const char* kProduct = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n";
constexpr const char* kAdd = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >";
constexpr const char* kGelu = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl<c10::Half> >";

void at_line(SimulatedProgram& p, int line, const std::string& function) {
    p.at({torch_line("nn/functional.py", "linear"), user_line(line, function), user_line(90)});
}

/// A product, three element-wise kernels, a read, two more, and one of another function.
void busy_step(SimulatedProgram& p, int, bool) {
    at_line(p, 20, "forward");
    p.launch(kProduct, 500);
    p.launch(kAdd, 100);
    at_line(p, 21, "forward");
    p.launch(kGelu, 80);
    p.launch(kAdd, 100);
    p.item();
    p.launch(kGelu, 80);
    p.launch(kAdd, 100);
    at_line(p, 30, "scale");
    p.launch(kAdd, 100);
    p.launch(kProduct, 500);
    p.launch("multi_tensor_apply_kernel", 40);
}

const KernelRow* row_of(const Diagnosis& diagnosis, std::string_view name) {
    for (const KernelRow& row : diagnosis.kernels.rows)
        if (row.name == name) return &row;
    return nullptr;
}

TEST(KernelTable, TimesArePlainSumsOfWhatWasRecorded) {
    const Timeline timeline = simulate(busy_step, false).timeline;
    const Diagnosis diagnosis = diagnose(timeline);
    std::map<std::string, std::pair<std::uint64_t, double>> sums;
    double all = 0;
    for (const Work& work : timeline.work) {
        const double ms = static_cast<double>(work.end - work.begin) * 1e-6;
        all += ms;
        if (work.kind != WorkKind::kKernel) continue;
        ++sums[timeline.names[work.name]].first;
        sums[timeline.names[work.name]].second += ms;
    }
    EXPECT_NEAR(diagnosis.kernels.gpu_ms, all, 1e-6);
    ASSERT_EQ(diagnosis.kernels.rows.size(), sums.size());
    double before = all;
    for (const KernelRow& row : diagnosis.kernels.rows) {
        EXPECT_EQ(row.calls, sums[row.name].first) << row.name;
        EXPECT_NEAR(row.ms, sums[row.name].second, 1e-6) << row.name;
        EXPECT_LE(row.ms, before) << "most time first";
        before = row.ms;
    }
}

TEST(KernelTable, RowsSayLineTypeAndTensorCores) {
    const Diagnosis diagnosis = diagnose(simulate(busy_step, false).timeline);
    const KernelRow *product = row_of(diagnosis, kProduct), *add = row_of(diagnosis, kAdd);
    ASSERT_TRUE(product && product->where && add && add->where);
    EXPECT_TRUE(product->where->line == 20 || product->where->line == 30);
    EXPECT_EQ(product->data_type, "bf16");
    EXPECT_EQ(product->units, Units::kTensor);
    EXPECT_FALSE(product->waves) << "nobody said how large the launches were";
    EXPECT_EQ(add->where->line, 21) << "half of its time";
    EXPECT_EQ(add->data_type, "f32");
    EXPECT_EQ(add->units, Units::kPlain);
    ASSERT_NE(row_of(diagnosis, kGelu), nullptr);
    EXPECT_EQ(row_of(diagnosis, kGelu)->data_type, "f16");
}

TEST(KernelTable, WavesAreMeansByTime) {
    Timeline timeline = simulate(busy_step, false).timeline;
    timeline.multiprocessors = {132, 2048, 32, 228 * 1024, 1024};
    bool large = false;
    for (Work& work : timeline.work) {
        if (timeline.names[work.name] != kProduct) continue;
        large = !large;
        work.launch = record::packed({large ? 132u * 8 * 3 : 132u * 8, 256, 32, 0});
    }
    const Diagnosis diagnosis = diagnose(timeline);
    const KernelRow* product = row_of(diagnosis, kProduct);
    ASSERT_TRUE(product && product->waves);
    EXPECT_NEAR(*product->waves, 2, 0.02);
    EXPECT_FALSE(row_of(diagnosis, kAdd)->waves);
}

TEST(KernelChains, EndAtOtherKernelsWaitsAndFunctions) {
    const Diagnosis diagnosis = diagnose(simulate(busy_step, false).timeline);
    const std::vector<KernelChain>& chains = diagnosis.kernels.chains;
    ASSERT_EQ(chains.size(), 2u);
    EXPECT_EQ(chains[0].names, (std::vector<std::string>{kAdd, kGelu, kAdd}));
    ASSERT_TRUE(chains[0].where);
    EXPECT_EQ(chains[0].where->line, 20);
    EXPECT_EQ(chains[0].times, 60u);
    EXPECT_NEAR(chains[0].ms, 60 * 0.28, 0.01);
    EXPECT_EQ(chains[1].names, (std::vector<std::string>{kGelu, kAdd})) << "without what another function adds";
    EXPECT_NEAR(chains[1].ms, 60 * 0.18, 0.01);
}

TEST(KernelChains, AreOfOneStream) {
    const auto body = [](SimulatedProgram& p, int, bool) {
        at_line(p, 20, "forward");
        p.launch(kProduct, 500);
        p.launch(kAdd, 100);
        p.launch(kAdd, 100, kSideStream);
        p.launch("multi_tensor_apply_kernel", 40);
        p.launch("multi_tensor_apply_kernel", 40, kSideStream);
    };
    EXPECT_TRUE(diagnose(simulate(body, false).timeline).kernels.chains.empty());
}

TEST(KernelChains, LaunchesWithoutALineCountInProportion) {
    Timeline timeline = simulate(busy_step, false).timeline;
    const Time half = (timeline.calls.front().begin + timeline.calls.back().end) / 2;
    for (Call& call : timeline.calls)
        if (call.kind == CallKind::kLaunch && call.begin > half) call.stack = kNoStack;
    const Diagnosis diagnosis = diagnose(timeline);
    ASSERT_EQ(diagnosis.kernels.chains.size(), 2u);
    EXPECT_LT(diagnosis.kernels.chains[0].times, 35u);
    EXPECT_NEAR(diagnosis.kernels.chains[0].ms, 60 * 0.28, 0.5) << "as much as of those whose line is known";
}

TEST(KernelChains, AreFoundWhereNoLineIsKnownAtAll) {
    Timeline timeline = simulate(busy_step, false).timeline;
    for (Call& call : timeline.calls) call.stack = kNoStack;
    timeline.has_call_stacks = false;
    const Diagnosis diagnosis = diagnose(timeline);
    ASSERT_FALSE(diagnosis.kernels.chains.empty());
    EXPECT_FALSE(diagnosis.kernels.chains[0].where);
    EXPECT_FALSE(row_of(diagnosis, kAdd)->where);
}

TEST(KernelTable, ATraceWithoutStepsHasOne) {
    Timeline timeline = simulate(busy_step, false, 4).timeline;
    timeline.work.resize(1);
    const Diagnosis diagnosis = diagnose(timeline);
    ASSERT_EQ(diagnosis.kernels.rows.size(), 1u);
    EXPECT_EQ(diagnosis.kernels.rows[0].name, kProduct);
}

TEST(KernelNames, SayTypeAndUnits) {
    struct Known {
        const char *name, *type;
        Units units;
        bool elementwise;
    };
    constexpr Known kKnown[] = {
        {"nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT", "bf16", Units::kTensor, false},
        {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "bf16", Units::kTensor, false},
        {"nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNN", "f16", Units::kTensor, false},
        {"ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", "f16", Units::kTensor, false},
        {"sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16", "tf32", Units::kTensor, false},
        {"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8", "f32", Units::kPlain, false},
        {"cutlass_80_tensorop_s1688gemm_128x128_16x5_nt_align4", "tf32", Units::kTensor, false},
        {"cutlass_80_simt_sgemm_128x64_8x5_tn_align1", "f32", Units::kPlain, false},
        {"ampere_sgemm_128x64_tn", "f32", Units::kPlain, false},
        {"void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>>", "f16",
         Units::kTensor, false},
        {"void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>", "f32", Units::kUnsaid, false},
        {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, at::native::MeanOps<double> > >", "f64",
         Units::kPlain, false},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long> >", "int64", Units::kPlain, true},
        {"triton_poi_fused_add_gelu_0", "", Units::kPlain, true},
        {"triton_tem_fused_mm_3", "", Units::kUnsaid, false},
        {"loop_multiply_fusion_12", "", Units::kPlain, true},
        {"my_own_kernel", "", Units::kUnsaid, false},
        {"", "", Units::kUnsaid, false},
    };
    for (const Known& known : kKnown) {
        EXPECT_EQ(data_type_of(known.name), known.type) << known.name;
        EXPECT_EQ(tensor_use_of(known.name), known.units) << known.name;
        EXPECT_EQ(is_elementwise(known.name), known.elementwise) << known.name;
    }
}

TEST(Multiprocessors, AreKnownByNameOrByWhatATraceSays) {
    const auto of = [](const char* name, std::optional<ComputeCapability> capability = {}, std::uint32_t count = 0) {
        Timeline timeline;
        timeline.device_name = name;
        describe_multiprocessors(timeline, capability, count);
        return timeline.multiprocessors;
    };
    EXPECT_EQ(of("NVIDIA H200"), (Multiprocessors{132, 2048, 32, 228 * 1024, 1024}));
    EXPECT_EQ(of("NVIDIA H100 PCIe").count, 114u);
    EXPECT_EQ(of("NVIDIA H100 80GB HBM3").count, 132u);
    EXPECT_EQ(of("NVIDIA A100-SXM4-80GB").count, 108u);
    EXPECT_EQ(of("Tesla T4"), (Multiprocessors{40, 1024, 16, 64 * 1024, 0}));
    EXPECT_EQ(of("NVIDIA A100-SXM4-40GB MIG 1g.5gb").count, 0u) << "a part of it";
    EXPECT_EQ(of("Some GPU").count, 0u);
    EXPECT_EQ(of("Some GPU", ComputeCapability{8, 6}, 20), (Multiprocessors{20, 1536, 16, 100 * 1024, 1024}));
    EXPECT_EQ(of("Some GPU", ComputeCapability{99, 0}, 20).count, 0u);
    EXPECT_EQ(of("NVIDIA H200", ComputeCapability{9, 0}, 66).count, 66u) << "what the trace says holds";
}

TEST(Multiprocessors, WavesAreBoundedByEachLimit) {
    const Multiprocessors h200{132, 2048, 32, 228 * 1024, 1024};
    const auto waves = [&](std::uint64_t blocks, std::uint32_t threads, std::uint32_t registers, std::uint32_t shared) {
        return waves_of({blocks, threads, registers, shared}, h200).value_or(-1);
    };
    EXPECT_DOUBLE_EQ(waves(132 * 8, 256, 32, 0), 1) << "threads";
    EXPECT_DOUBLE_EQ(waves(132 * 32, 32, 16, 0), 1) << "blocks";
    EXPECT_DOUBLE_EQ(waves(132 * 3, 128, 168, 0), 1) << "registers: 12 warps of 5,376";
    EXPECT_DOUBLE_EQ(waves(132, 384, 168, 200 * 1024), 1) << "shared memory";
    EXPECT_DOUBLE_EQ(waves(66, 384, 168, 200 * 1024), 0.5);
    EXPECT_DOUBLE_EQ(waves(132, 384, 32, 228 * 1024), -1) << "no such block fits";
    EXPECT_DOUBLE_EQ(waves(132, 0, 32, 0), -1);
    EXPECT_DOUBLE_EQ(waves(132, 256, 0, 0), -1) << "registers are not known";
    EXPECT_DOUBLE_EQ(waves(132, 256, 255, 0), 1) << "8 warps of 8,192 registers";
    EXPECT_FALSE(waves_of({132, 256, 32, 0}, {}));
    EXPECT_FALSE(waves_of({1, 4095, 255, 0}, {1, 1, 1, 1, 1}));
}

TEST(LaunchSize, IsTheSameAfterPackingUpToWhatFits) {
    const auto again = [](const record::LaunchSize& size) { return record::unpacked(record::packed(size)); };
    const record::LaunchSize usual = again({1'000'000, 1024, 255, 227 * 1024});
    EXPECT_EQ(std::tuple(usual.blocks, usual.threads, usual.registers, usual.shared_bytes),
              std::tuple(1'000'000u, 1024u, 255u, 227u * 1024));
    EXPECT_EQ(again({1, 1, 1, 1}).shared_bytes, 128u);
    const record::LaunchSize most = again({~std::uint64_t{0}, ~0u, ~0u, ~0u});
    EXPECT_EQ(std::tuple(most.blocks, most.threads, most.registers, most.shared_bytes),
              std::tuple(0xffffffffu, 0xfffu, 0xffu, 0xfffu * 128));
    EXPECT_EQ(record::packed({}), 0u);
}

}  // namespace
}  // namespace millrace::diagnose
