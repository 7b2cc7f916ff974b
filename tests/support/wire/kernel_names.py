"""Kernel names of real libraries, mangled and demangled, and the class of each."""

import gzip
import json
import re
import sqlite3
from contextlib import closing

from tests.service.require import shared_data

COLLECTIVE_NAMES = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllGather_LL",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "mscclpp::collective::allreducePacket<float>(float*)",
    "nvshmemi_barrier_kernel",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)",
    "_ZN4vllm26cross_device_reduce_2stageI6__halfLi4EEEvPNS_8RankDataENS_11RankSignalsEPNS_6SignalEPT_ii",
    "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*)",
    "cross_device_all_gather",
    # FlashInfer and TensorRT-LLM
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(Pattern)1, __nv_bfloat16, 8>()",
    "allreduce_fusion_kernel_twoshot_sync",
    "moefinalize_allreduce_fusion_kernel_oneshot_lamport",
    "_ZN12tensorrt_llm7kernels22oneShotAllReduceKernelI6__halfLi8ELb0EEEvNS0_15AllReduceParamsE",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 4>(tensorrt_llm::kernels::AllReduceParams)",
    "void tensorrt_llm::kernels::lamport_style_one_shot_all_reduce_norm_kernel<__half, 8, true>()",
    "oneshotAllreduceFusionKernel",
    "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<8, __nv_bfloat16>(unsigned int)",
    "mnnvl_lamport_all_gather",
    "mnnvl_lamport_reduce_scatter",
    "moeA2ADispatchKernel",
    "void tensorrt_llm::kernels::moe_comm::moeA2ACombineKernel<8>(tensorrt_llm::kernels::CombinePointers)",
    # vLLM's and SGLang's quick reduce, AITER
    "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>>(void const*)",
    "_ZN5aiter30allreduce_fusion_kernel_1stageI14__hip_bfloat16Li8EEEv",
    "allreduce_fusion_kernel_2stage_per_group",
    # PyTorch's symmetric memory
    "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, true>(c10::BFloat16**)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)",
    "_ZN67_GLOBAL__N__6f2c1d3e_25_CUDASymmetricMemoryOps_cu_5a1b2c3d_1234567835multimem_one_shot_all_reduce_kernelIfEEv",
    "multimem_all_reduce_kernel",
    "multimem_one_shot_reduce_kernel",
    "multimem_all_gather_kernel",
    "_multimem_all_gather_kernel",
    "c10d::intra_node_comm::hybridCubeMeshAllReduceKernel<8>()",
    # FBGEMM, XLA
    "void fbgemm_gpu::one_shot_all_reduce<8, true>(int, int, int)",
    "void stream_executor::gpu::AllReduceKernelImpl<float, (xla::ReductionKind)0>(stream_executor::gpu::Params)",
    "_ZN15stream_executor3gpu19AllReduceKernelImplIfLN3xla13ReductionKindE0EEEv",
    # expert parallelism: DeepEP, mori, pplx
    "void deep_ep::intranode::dispatch<(int)2, (int)768, (int)8192>(int4*, float*, float*, int*)",
    "_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4PfS3_Pi",
    "void deep_ep::internode_ll::combine<(bool)0, (int)6144>(void*, void*, int*)",
    "_ZN7deep_ep12internode_ll7combineILb0ELi6144EEEvPvS1_Pi",
    "void deep_ep::internode::notify_dispatch<false, 4>(int const*, int*, int, int const*)",
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*, int, int, int, int**, int)",
    "_ZN7deep_ep7elastic13dispatch_implILi8EEEvv",
    "_ZN7deep_ep7elastic12combine_implILi8EEEvv",
    "_ZN7deep_ep7elastic7barrierEv",
    "EpDispatchInterNodeV1Kernel_bf16",
    "void mori::moe::EpDispatchInterNodeV1KernelLowLatency<hip_bfloat16>(mori::moe::EpDispatchCombineArgs<__half>)",
    "EpCombineIntraNodeKernel_bf16_nop2p",
    "_ZN4mori3moe25EpDispatchIntraNodeKernelI12hip_bfloat16EEvNS0_21EpDispatchCombineArgsIT_EE",
    "_ZN4mori3moe20EpCombineSyncBarrierIfEEvNS0_21EpDispatchCombineArgsIT_EE",
    "ep_dispatch_intranode_0",
    # a number at the end of a namespace, and the length of the next one
    "_ZN3c1041_GLOBAL__N__0c2a1f3e_9_device_cu_a1b2c3d413ncclDevKernelEPf",
    "a2a_dispatch_recv_kernel",
    "void a2a_combine_send_kernel<16u, 8u>(unsigned long, unsigned long)",
)

OTHER_NAMES = (
    "ampere_sgemm_128x64_nn",
    "k",
    "",
    # Inductor names its fused kernels after the operators around them; none waits for another GPU.
    "triton_poi_fused_add_all_reduce_4",
    "triton_poi_fused_all_reduce_lift_fresh_0",
    "triton_poi_fused_all_to_all_single_clone_permute_view_0",
    "triton_poi_fused_all_gather_into_tensor_wait_tensor_2",
    "triton_poi_fused_add_reduce_scatter_tensor_1",
    "triton_red_fused__to_copy_add_all_reduce_mean_pow_rsqrt_7",
    "triton_per_fused_one_shot_all_reduce_add_native_layer_norm_3",
    "triton_poi_fused_multimem_all_reduce_0",
    "triton_poi_fused_scatter_reduce_5",
    "triton_red_fused_index_reduce_scatter_add_9",
    "triton_tem_fused_mm_all_gather_3",
    "loop_add_all_reduce_fusion_12",
    "input_reduce_fusion_3",
    # reductions within one GPU
    "block_all_reduce_sum_f32_f32_kernel(float*, float*, int)",
    "void warpAllReduce<float>(float*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "void at::native::index_reduce_func_cuda_kernel<float>(float*)",
    "scatter_reduce_kernel",
    "void cub::DeviceReduceSingleTileKernel<cub::Policy, float*>(float*)",
    # dispatch and combine that stay on one GPU
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64>>(flash::Flash_fwd_params)",
    "void cutlass::device_kernel<cutlass::gemm::kernel::DispatchPolicy>(cutlass::Params)",
    "splitKreduce_kernel<32, 16, int, float>",
    "fused_moe_kernel",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "_ZN7deep_ep6layout19get_dispatch_layoutILi256EEEvPKlPi",
    "deep_epilogue_combine_kernel",
    "EpDispatchCopyToStaging_bf16",
    "void mori::moe::EpDispatchCopyToStaging<hip_bfloat16>(mori::moe::EpDispatchCombineArgs<hip_bfloat16>)",
    "prep_combine_kernel",
    "step_dispatch_kernel",
    "moeA2APrepareDispatchKernel",
    "void tensorrt_llm::kernels::ar_fusion::lamport_initialize_kernel<float>(float*, unsigned long)",
    # the letters of `nccl` and `rccl` at the end of one word and the beginning of the next
    "trunc_clamp_kernel",
    "void at::native::syncClearKernel<float>(float*)",
    "arc_clip_kernel",
    # the name of the source file is no part of the kernel's
    "_ZN53_GLOBAL__N__0c2a1f3e_22_one_shot_all_reduce_cu_a1b2c34initEPf",
    "_ZN53_INTERNAL_0c2a1f3e_22_multimem_all_gather_cu_a1b2c3d_4initEPf",
)

_COLLECTIVE_WORDS = re.compile(
    "nccl|rccl|msccl|nvshmem|oneshot_allreduce|twoshot_allreduce|cross_device_reduce", re.IGNORECASE
)


def has_collective_word(name: str) -> bool:
    """Whether the name has a word that only collectives of the recordings have."""
    return bool(_COLLECTIVE_WORDS.search(name))


def recorded_names() -> set[str]:
    """Every kernel name of the shared recordings, or a skip."""
    names: set[str] = set()
    for path in sorted(shared_data("kineto").glob("*.json.gz")):
        with gzip.open(path) as file:
            document = json.load(file)
        events = document["traceEvents"] if isinstance(document, dict) else document
        names |= {event["name"] for event in events if str(event.get("cat")).lower() == "kernel"}
    for path in sorted(shared_data("nsys").glob("*.sqlite")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            kernels = "SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL"
            mangled = "SELECT mangledName FROM CUPTI_ACTIVITY_KIND_KERNEL"
            both = f"SELECT value FROM StringIds WHERE id IN ({kernels}) OR id IN ({mangled})"  # noqa: S608  our own words
            names |= {value for (value,) in database.execute(both)}
    return names
