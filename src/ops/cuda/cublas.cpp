#include "ops/cuda/cublas.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace millrace::ops::cuda {
namespace {

base::Result<const CublasLt*> load() {
    const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* reason = dlerror();
        return base::Error{fmt::format("cuBLASLt could not be loaded: {}; LD_LIBRARY_PATH may name its folder",
                                       reason != nullptr ? reason : name)};
    }
    static CublasLt all;
    const char* missing = nullptr;
    const auto find = [&](auto& function, const char* symbol) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
        if (function == nullptr && missing == nullptr) missing = symbol;
    };
    find(all.create, "cublasLtCreate");
    find(all.destroy, "cublasLtDestroy");
    find(all.status_string, "cublasLtGetStatusString");
    find(all.matmul, "cublasLtMatmul");
    find(all.layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(all.desc_destroy, "cublasLtMatmulDescDestroy");
    find(all.layout_create, "cublasLtMatrixLayoutCreate");
    find(all.layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(all.desc_create, "cublasLtMatmulDescCreate");
    find(all.desc_set, "cublasLtMatmulDescSetAttribute");
    find(all.preference_create, "cublasLtMatmulPreferenceCreate");
    find(all.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(all.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(all.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    if (missing != nullptr)
        return base::Error{fmt::format("{} has no {}; another version of CUDA would be right", name, missing)};
    return &all;
}

}  // namespace

base::Result<const CublasLt*> load_cublas() {
    static const auto* loaded = new base::Result<const CublasLt*>(load());
    return *loaded;
}

}  // namespace millrace::ops::cuda
