// Command control-plane is every part of Kubernetes that the tests of Shoal stand on, in one static
// binary: the first argument names the component, the rest are that component's own flags.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	etcd "go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	runtime "k8s.io/cri-client/pkg/fake"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = "usage: control-plane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kubectl|fake-runtime [flags]"

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	component := os.Args[1]
	// Each component reads os.Args by itself, so it must see only its own.
	os.Args = append([]string{component}, os.Args[2:]...)
	switch component {
	case "etcd":
		etcd.Main(os.Args)
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kubelet":
		run(kubelet.NewKubeletCommand(context.Background()))
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "fake-runtime":
		fakeRuntime()
	default:
		fmt.Fprintf(os.Stderr, "unknown component %q\n%s\n", component, usage)
		os.Exit(2)
	}
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

// fakeRuntime serves the container runtime interface on the unix socket given as its only argument.
// Its containers are Running as soon as they are started, and nothing is executed.
func fakeRuntime() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: control-plane fake-runtime SOCKET")
		os.Exit(2)
	}
	server := runtime.NewFakeRemoteRuntime()
	if err := server.Start("unix://" + os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "the fake container runtime cannot listen on %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	server.Stop()
}
