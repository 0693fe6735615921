// Compares the declarations of cupti_abi.h and call_list.h with the toolkit's headers, where there are any. Nothing
// of it remains in the library.

#ifdef MILLRACE_HAVE_CUPTI_HEADERS

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <nvtx3/nvToolsExt.h>

#include <cstddef>

#include "probe/cupti_abi.h"

namespace millrace::probe {
namespace {

#define SAME_NUMBER(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs)
#define SAME_PLACE(ours, type, field) static_assert((ours) == offsetof(type, field), #type "." #field)
#define SAME_FIELD(our_type, our_field, type, field) SAME_PLACE(offsetof(our_type, our_field), type, field)

SAME_NUMBER(kCuptiSuccess, CUPTI_SUCCESS);
SAME_NUMBER(kCuptiOtherSubscriber, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME_NUMBER(kDriverDomain, CUPTI_CB_DOMAIN_DRIVER_API);
SAME_NUMBER(kRuntimeDomain, CUPTI_CB_DOMAIN_RUNTIME_API);
SAME_NUMBER(kEnter, CUPTI_API_ENTER);
SAME_NUMBER(kExit, CUPTI_API_EXIT);
SAME_NUMBER(kActivityMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME_NUMBER(kActivityMemset, CUPTI_ACTIVITY_KIND_MEMSET);
SAME_NUMBER(kActivityKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME_NUMBER(kActivityMemcpyPeer, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME_NUMBER(kFlushForced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);

SAME_FIELD(CuptiCall, site, CUpti_CallbackData, callbackSite);
SAME_FIELD(CuptiCall, function, CUpti_CallbackData, functionName);
SAME_FIELD(CuptiCall, parameters, CUpti_CallbackData, functionParams);
SAME_FIELD(CuptiCall, result, CUpti_CallbackData, functionReturnValue);
SAME_FIELD(CuptiCall, symbol, CUpti_CallbackData, symbolName);
SAME_FIELD(CuptiCall, context, CUpti_CallbackData, context);
SAME_FIELD(CuptiCall, context_number, CUpti_CallbackData, contextUid);
SAME_FIELD(CuptiCall, kept, CUpti_CallbackData, correlationData);
SAME_FIELD(CuptiCall, correlation, CUpti_CallbackData, correlationId);
#if CUPTI_API_VERSION >= 130000
SAME_FIELD(CuptiSubscriberParameters, size, CUpti_SubscriberParams, structSize);
SAME_FIELD(CuptiSubscriberParameters, name, CUpti_SubscriberParams, subscriberName);
SAME_FIELD(CuptiSubscriberParameters, incumbent, CUpti_SubscriberParams, oldSubscriberName);
SAME_FIELD(CuptiSubscriberParameters, incumbent_size, CUpti_SubscriberParams, oldSubscriberSize);
static_assert(sizeof(CuptiSubscriberParameters) == CUpti_SubscriberParams_STRUCT_SIZE);
using Kernel = CUpti_ActivityKernel10;
using Copy = CUpti_ActivityMemcpy6;
#else
using Kernel = CUpti_ActivityKernel9;
using Copy = CUpti_ActivityMemcpy5;
#endif
SAME_PLACE(kernel_at::kRegisters, Kernel, registersPerThread);
SAME_PLACE(kernel_at::kStaticShared, Kernel, staticSharedMemory);
SAME_PLACE(kernel_at::kDynamicShared, Kernel, dynamicSharedMemory);
SAME_PLACE(kernel_at::kStart, Kernel, start);
SAME_PLACE(kernel_at::kEnd, Kernel, end);
SAME_PLACE(kernel_at::kDevice, Kernel, deviceId);
SAME_PLACE(kernel_at::kStream, Kernel, streamId);
SAME_PLACE(kernel_at::kGrid, Kernel, gridX);
SAME_PLACE(kernel_at::kBlock, Kernel, blockX);
SAME_PLACE(kernel_at::kCorrelation, Kernel, correlationId);
SAME_PLACE(kernel_at::kName, Kernel, name);
SAME_PLACE(kernel_at::kNode, Kernel, graphNodeId);
SAME_PLACE(kernel_at::kGraph, Kernel, graphId);
SAME_PLACE(copy_at::kKind, Copy, copyKind);
SAME_PLACE(copy_at::kFrom, Copy, srcKind);
SAME_PLACE(copy_at::kTo, Copy, dstKind);
SAME_PLACE(copy_at::kBytes, Copy, bytes);
SAME_PLACE(copy_at::kStart, Copy, start);
SAME_PLACE(copy_at::kEnd, Copy, end);
SAME_PLACE(copy_at::kDevice, Copy, deviceId);
SAME_PLACE(copy_at::kStream, Copy, streamId);
SAME_PLACE(copy_at::kCorrelation, Copy, correlationId);
SAME_PLACE(copy_at::kNode, Copy, graphNodeId);
SAME_PLACE(copy_at::kGraph, Copy, graphId);
SAME_PLACE(peer_copy_at::kFrom, CUpti_ActivityMemcpyPtoP4, srcKind);
SAME_PLACE(peer_copy_at::kTo, CUpti_ActivityMemcpyPtoP4, dstKind);
SAME_PLACE(peer_copy_at::kBytes, CUpti_ActivityMemcpyPtoP4, bytes);
SAME_PLACE(peer_copy_at::kStart, CUpti_ActivityMemcpyPtoP4, start);
SAME_PLACE(peer_copy_at::kEnd, CUpti_ActivityMemcpyPtoP4, end);
SAME_PLACE(peer_copy_at::kDevice, CUpti_ActivityMemcpyPtoP4, deviceId);
SAME_PLACE(peer_copy_at::kStream, CUpti_ActivityMemcpyPtoP4, streamId);
SAME_PLACE(peer_copy_at::kCorrelation, CUpti_ActivityMemcpyPtoP4, correlationId);
SAME_PLACE(peer_copy_at::kNode, CUpti_ActivityMemcpyPtoP4, graphNodeId);
SAME_PLACE(set_at::kBytes, CUpti_ActivityMemset4, bytes);
SAME_PLACE(set_at::kStart, CUpti_ActivityMemset4, start);
SAME_PLACE(set_at::kEnd, CUpti_ActivityMemset4, end);
SAME_PLACE(set_at::kDevice, CUpti_ActivityMemset4, deviceId);
SAME_PLACE(set_at::kStream, CUpti_ActivityMemset4, streamId);
SAME_PLACE(set_at::kCorrelation, CUpti_ActivityMemset4, correlationId);
SAME_PLACE(set_at::kMemory, CUpti_ActivityMemset4, memoryKind);
SAME_PLACE(set_at::kNode, CUpti_ActivityMemset4, graphNodeId);

SAME_PLACE(launch_at::kFunction, cudaLaunchKernel_v7000_params, func);
SAME_PLACE(launch_at::kGrid, cudaLaunchKernel_v7000_params, gridDim);
SAME_PLACE(launch_at::kBlock, cudaLaunchKernel_v7000_params, blockDim);
SAME_PLACE(launch_at::kArguments, cudaLaunchKernel_v7000_params, args);
SAME_PLACE(launch_at::kStream, cudaLaunchKernel_v7000_params, stream);
SAME_PLACE(launch_at::kGrid, cuLaunchKernel_params, gridDimX);
SAME_PLACE(launch_at::kBlock, cuLaunchKernel_params, blockDimX);
SAME_PLACE(launch_at::kDriverStream, cuLaunchKernel_params, hStream);
SAME_PLACE(launch_at::kDriverArguments, cuLaunchKernel_params, kernelParams);
SAME_PLACE(launch_at::kDriverBlock, cuLaunchKernel_params, extra);
SAME_PLACE(launch_at::kExBlock, cuLaunchKernelEx_params, extra);
SAME_PLACE(launch_at::kDriverArguments, cuLaunchCooperativeKernel_params, kernelParams);
SAME_PLACE(launch_at::kConfig, cudaLaunchKernelExC_v11060_params, config);
SAME_PLACE(launch_at::kExFunction, cudaLaunchKernelExC_v11060_params, func);
SAME_PLACE(launch_at::kExArguments, cudaLaunchKernelExC_v11060_params, args);
SAME_PLACE(launch_at::kExFunction, cuLaunchKernelEx_params, f);
SAME_PLACE(launch_at::kExArguments, cuLaunchKernelEx_params, kernelParams);
SAME_PLACE(launch_at::kConfigStream, cudaLaunchConfig_t, stream);
SAME_PLACE(launch_at::kConfigStream, CUlaunchConfig, hStream);

SAME_NUMBER(kNvtxCallbacks, NVTX_ETID_CALLBACKS);
SAME_NUMBER(kNvtxCore, NVTX_CB_MODULE_CORE);
SAME_NUMBER(kNvtxCore2, NVTX_CB_MODULE_CORE2);
SAME_NUMBER(kNvtxPushEx, NVTX_CBID_CORE_RangePushEx);
SAME_NUMBER(kNvtxPushA, NVTX_CBID_CORE_RangePushA);
SAME_NUMBER(kNvtxPop, NVTX_CBID_CORE_RangePop);
SAME_NUMBER(kNvtxDomainPushEx, NVTX_CBID_CORE2_DomainRangePushEx);
SAME_NUMBER(kNvtxDomainPop, NVTX_CBID_CORE2_DomainRangePop);
SAME_NUMBER(kNvtxAscii, NVTX_MESSAGE_TYPE_ASCII);
SAME_PLACE(nvtx_at::kMessageType, nvtxEventAttributes_t, messageType);
SAME_PLACE(nvtx_at::kMessage, nvtxEventAttributes_t, message);

#define CALL(domain, name, number, kind, shape) SAME_##domain(name, number)
#define SAME_Runtime(name, number) SAME_NUMBER(number, CUPTI_RUNTIME_TRACE_CBID_##name);
#define SAME_Driver(name, number) SAME_NUMBER(number, CUPTI_DRIVER_TRACE_CBID_##name);
#include "probe/call_list.h"
#undef CALL

}  // namespace
}  // namespace millrace::probe

#endif
