#include <algorithm>
#include <array>

#include "diagnose/findings/findings.h"

namespace millrace::diagnose {
namespace {

/// By framework, in its order. Where nothing is said, Lightning and Trainer have PyTorch's words, the others those of CUDA.
struct AdviceRow {
    Topic topic;
    std::array<const char*, kFrameworks> words;
};

constexpr AdviceRow kTable[] = {
    {Topic::kRead,
     {"Copy results into pinned memory with cudaMemcpyAsync, record an event, and look at it some steps later.",
      "Keep the value on the GPU (`total += loss.detach()`, `torch.where` instead of `if`) and read it every hundred steps or "
      "after the loop, without `.item()`, `.cpu()` or `print` in it; upload with `pin_memory()` and `non_blocking=True`.",
      "Log with `self.log(..., on_step=False, on_epoch=True)`, and keep `.item()`, `print` and `prog_bar` out of the step.",
      "Raise `logging_steps`, set `logging_nan_inf_filter=False`, and keep `.item()` out of `compute_loss` and callbacks.",
      "Keep the array on the device and call `float()` or `jax.device_get` every hundred steps.",
      "Keep the tensor and call `.numpy()` every hundred steps; in `fit`, raise `steps_per_execution`."}},
    {Topic::kReadTogether,
     {"Compute all of them together into one buffer, and fetch that once, or not in every step.",
      "Compute all of them together and read once: `torch._foreach_norm(tensors)`, `torch.stack(values).tolist()`."}},
    {Topic::kLaunches,
     {"Capture the step in a CUDA graph and replay it, or fuse kernels.",
      "Capture the step in a CUDA graph (`torch.compile(mode=\"reduce-overhead\")`, or `torch.cuda.graph` with static shapes), "
      "or give each kernel more to do (larger batch, fused operators).",
      "Compile the model before `trainer.fit` (`torch.compile(model, mode=\"reduce-overhead\")`), or take a larger batch.",
      "`TrainingArguments(torch_compile=True, optim=\"adamw_torch_fused\")`, or a larger `per_device_train_batch_size`.",
      "Put the whole step (loss, gradient, update) under one `jax.jit`, or several steps under `jax.lax.scan`.",
      "Put the whole step under `@tf.function(jit_compile=True)`, or take several at once (`steps_per_execution`)."}},
    {Topic::kPageable,
     {"Allocate the host buffer once with cudaHostAlloc (or cudaHostRegister it) and use cudaMemcpyAsync.",
      "Pin the source once (`pin_memory()`, `DataLoader(..., pin_memory=True)`), copy with `.to(\"cuda\", non_blocking=True)`.",
      "Pin batches (`DataLoader(..., pin_memory=True)`).", "Leave `dataloader_pin_memory=True`.",
      "Send the next batch while this one computes: `jax.device_put` a step ahead.",
      "End the pipeline with `tf.data.experimental.prefetch_to_device(\"/GPU:0\")`."}},
    {Topic::kFlush,
     {"Allocate once before the loop and keep the buffers, or use cudaMallocAsync with a pool that keeps its memory.",
      "No `torch.cuda.empty_cache()` in the loop; against fragmentation PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
      nullptr, "Set `torch_empty_cache_steps=None`.", "Do not set XLA_PYTHON_CLIENT_ALLOCATOR=platform.",
      "Leave memory to TensorFlow's own allocator."}},
    {Topic::kShapes,
     {"Allocate once before the loop and keep the buffers: pad shapes to a few sizes.",
      "Keep shapes constant (pad to a few sizes), or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."}},
    {Topic::kPrecision,
     {"Let cuBLAS use TF32 (CUBLAS_TF32_TENSOR_OP_MATH) or run products in bf16 with FP32 accumulation.",
      "`torch.set_float32_matmul_precision(\"high\")` (TF32), or `torch.autocast(\"cuda\", torch.bfloat16)` around the forward "
      "pass.",
      "`Trainer(precision=\"bf16-mixed\")`.", "`TrainingArguments(bf16=True)`, or `tf32=True`.",
      "`jax.config.update(\"jax_default_matmul_precision\", \"tensorfloat32\")`, or compute in `jnp.bfloat16`.",
      "`tf.keras.mixed_precision.set_global_policy(\"mixed_bfloat16\")`."}},
    {Topic::kMemory,
     {"Use narrower types, recompute activations, or take a smaller batch.",
      "Use bf16 autocast or `torch.utils.checkpoint`, or a smaller batch with gradient accumulation.",
      "`Trainer(precision=\"bf16-mixed\", accumulate_grad_batches=2)` with half the batch.",
      "`gradient_checkpointing=True`, `bf16=True`, or a smaller batch with `gradient_accumulation_steps`.",
      "Donate what the step replaces (`donate_argnums`), recompute with `jax.checkpoint`, or take a smaller batch."}},
    {Topic::kPythonWork,
     {"Prepare the next step on another thread, or do it on the device.",
      "Move it into the Dataset (loader workers), onto the GPU with torch operators, or do it before this step is waited for.",
      nullptr, nullptr, "Move it into the jitted step or the data pipeline, or do it before this step's result is read.",
      "Move it into the `tf.function` or the `tf.data` pipeline."}},
    {Topic::kConstant,
     {"Compute it once before the loop, keep it on the GPU and use it in every step.",
      "Compute it once before the loop (`self.register_buffer(\"table\", ...)`) and use it in every step."}},
    {Topic::kNoWorkers,
     {"Prepare batches ahead of the step, in other processes or threads.",
      "Give the loader workers: `DataLoader(..., num_workers=8, persistent_workers=True, pin_memory=True)`.", nullptr,
      "`TrainingArguments(dataloader_num_workers=8, dataloader_persistent_workers=True)`.", nullptr,
      "`dataset.map(..., num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)`."}},
    {Topic::kFewWorkers,
     {"Give the loader more workers or make the transform cheaper: precompute it, do it per batch, or on the GPU.",
      "Raise `num_workers` or make the transform cheaper: precompute it, do it per batch, or on the GPU.", nullptr,
      "Raise `dataloader_num_workers` or make the transform cheaper: precompute it, or do it per batch.", nullptr,
      "Raise `num_parallel_calls` or make the transform cheaper: precompute it (`cache()`), or do it per batch."}},
    {Topic::kPacking,
     {"Return arrays of one shape, not lists of Python objects, and pack a batch once.",
      "Return tensors of one shape, not lists of Python objects, and collate once (`collate_fn` with `torch.stack`)."}},
    {Topic::kIdleWorkers,
     {"Let more batches wait ready, and take less time to hand one over.",
      "Raise `prefetch_factor`, keep workers alive (`persistent_workers=True`), and make `collate_fn` and pinning cheaper.",
      nullptr, "Raise `dataloader_prefetch_factor`, set `dataloader_persistent_workers=True`.", nullptr,
      "End the pipeline with `prefetch(tf.data.AUTOTUNE)`."}},
    {Topic::kEvaluation,
     {"Evaluate in larger batches, or launch them as a CUDA graph.",
      "Evaluate in larger batches (`torch.inference_mode()` keeps nothing for a backward pass), or capture the forward pass.",
      nullptr, "Raise `per_device_eval_batch_size`: nothing is kept for a backward pass."}},
};

/// The framework under whose frames a stack launches; the innermost, but Lightning and Trainer before the PyTorch below them.
Framework framework_of(const Stack& stack) {
    Framework found = Framework::kCuda;
    for (const Frame& frame : stack) {
        const auto here = framework_in(frame.file);
        if (!here || is_loader(frame)) continue;
        if (found == Framework::kCuda) found = *here;
        if (found == Framework::kPyTorch && (*here == Framework::kLightning || *here == Framework::kTrainer)) return *here;
    }
    return found;
}

}  // namespace

const char* advice_for(Topic topic, Framework framework) {
    const AdviceRow& row = *std::ranges::find(kTable, topic, &AdviceRow::topic);
    const bool on_torch = framework == Framework::kLightning || framework == Framework::kTrainer;
    for (const Framework each : {framework, on_torch ? Framework::kPyTorch : Framework::kCuda})
        if (const char* words = row.words[static_cast<std::size_t>(each)]) return words;
    return row.words[static_cast<std::size_t>(Framework::kCuda)];
}

Framework framework_of(const Timeline& timeline, const Launcher& launcher) {
    std::vector<Framework> of_stack;
    for (const Stack& stack : timeline.stacks) of_stack.push_back(framework_of(stack));
    std::array<std::size_t, kFrameworks> seen{};
    const auto count = [&](std::uint32_t stack) { ++seen[static_cast<std::size_t>(of_stack[stack])]; };
    const auto most = [&] {
        seen[static_cast<std::size_t>(Framework::kCuda)] = 0;
        const auto at = std::ranges::max_element(seen);
        return *at > 0 ? static_cast<Framework>(at - seen.begin()) : Framework::kCuda;
    };
    for (const Call& call : timeline.calls)
        if (call.process == launcher.process) count(call.stack);
    if (const Framework found = most(); found != Framework::kCuda) return found;
    for (const Sample& sample : timeline.samples)
        if (sample.process == launcher.process && sample.thread == launcher.main_thread) count(sample.stack);
    if (const Framework found = most(); found != Framework::kCuda) return found;
    // A trace without stacks is PyTorch's own.
    const auto is_native = [](const std::string& name) { return name.find("at::native::") != std::string::npos; };
    const bool torch = timeline.source == Source::kKineto || std::ranges::any_of(timeline.names, is_native);
    return torch ? Framework::kPyTorch : Framework::kCuda;
}

}  // namespace millrace::diagnose
